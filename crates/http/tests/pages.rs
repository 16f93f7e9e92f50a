//! Every problem type has its page, with the status and the title that callers see.

use std::path::Path;

use onlyonce_http::ProblemKind;

#[test]
fn every_problem_type_has_a_page_and_every_page_a_type() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let list = std::fs::read_to_string(folder.join("README.md")).unwrap();
    for kind in ProblemKind::ALL {
        let page = std::fs::read_to_string(folder.join(format!("{kind}.md"))).unwrap();
        let (title, status) = (kind.title(), kind.status().as_u16());
        assert!(page.starts_with(&format!("# `{kind}`: {title}\n\nStatus {status}.\n")), "{kind}");
        for part in ["## What it means", "## What to do", "## Example"] {
            assert!(page.contains(part), "{kind}: {part}");
        }
        assert!(list.contains(&format!("| [`{kind}`]({kind}.md) | {status} | {title} |")), "{kind}");
    }
    let pages = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(pages, ProblemKind::ALL.len() + 1, "one page each, and the list");
}
