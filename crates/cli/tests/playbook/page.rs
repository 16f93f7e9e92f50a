//! The blocks of the page that are marked ```` ```sh playbook SCENARIO PHASE ````, and what it says that they print.

use std::fs;
use std::path::Path;

/// What is run while something is wrong (`see`), what the page says to do (`do`), and what is run when it is mended.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) scenario: String,
    pub(crate) phase: String,
    pub(crate) commands: String,
    /// Each is found in the output, in this order.
    pub(crate) expected: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) blocks: Vec<Block>,
}

impl Page {
    pub(crate) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operating.md");
        let page = Self::parse(&fs::read_to_string(path).unwrap());
        assert!(page.blocks.len() > 10, "{page:?}");
        page
    }

    fn parse(text: &str) -> Self {
        let mut blocks = Vec::new();
        for part in text.split("\n```sh playbook ").skip(1) {
            let (head, rest) = part.split_once('\n').unwrap();
            let (scenario, phase) = head.split_once(' ').unwrap_or_else(|| panic!("no phase: {head}"));
            let (commands, _) = rest.split_once("\n```").unwrap_or_else(|| panic!("no end: {head}"));
            let expected = commands.lines().filter_map(|line| line.strip_prefix("# prints: "));
            blocks.push(Block {
                scenario: scenario.to_owned(),
                phase: phase.trim().to_owned(),
                commands: commands.to_owned(),
                expected: expected.map(str::to_owned).collect(),
            });
        }
        Self { blocks }
    }
}

#[test]
fn blocks_are_read_with_what_they_print() {
    let page = Page::parse("# A\n```sh playbook a see\nx\n# prints: 1\ny\n```\n```sh\nnot this\n```\n");
    let [block] = &page.blocks[..] else { panic!("{page:?}") };
    assert_eq!((block.scenario.as_str(), block.phase.as_str()), ("a", "see"));
    assert_eq!((block.commands.as_str(), &block.expected[..]), ("x\n# prints: 1\ny", &["1".to_owned()][..]));
}
