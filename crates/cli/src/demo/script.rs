//! What there is to try, as numbered shell lines with what to expect. The tour does the same things itself.

use super::place::Place;
use crate::paint::{Paint, Tone};

/// Everything a caller needs to know about one thing to try.
pub(super) struct Step {
    pub(super) title: &'static str,
    pub(super) shell: Vec<String>,
    /// What comes back, and why.
    pub(super) expect: &'static str,
}

/// The steps, in order. The tour has one function for each of them.
pub(super) fn steps(place: &Place, process: u32) -> [Step; 8] {
    let curl = |order: &str, amount: u32, more: &str| {
        let key = place.key(order);
        format!(
            "curl -i http://{}/payments --json '{{\"amount\": {amount}}}' -H 'Idempotency-Key: \"{key}\"'{more}",
            place.listen
        )
    };
    let count = format!("curl http://{}/payments/count", place.upstream);
    [
        Step {
            title: "Pay",
            shell: vec![curl("order-1", 100, "")],
            expect: "201 and a payment. The answer was recorded before its first byte left.",
        },
        Step {
            title: "Ask again: a replay",
            shell: vec![curl("order-1", 100, ""), count.clone()],
            expect: "The same 201, byte for byte, marked as a replay. There is still one payment.",
        },
        Step {
            title: "The same key for something else: a mismatch",
            shell: vec![curl("order-1", 999, "")],
            expect: "422. The key belongs to a payment of 100; the payments API was not asked.",
        },
        Step {
            title: "Ask again while it is running: a conflict",
            shell: vec![
                format!("{} &", curl("order-2", 200, " -H 'Demo-Slow: 3s'")),
                format!("sleep 1; {}", curl("order-2", 200, "")),
            ],
            expect: "409, and when to try again. Once the first is done, the same line gets its answer.",
        },
        Step {
            title: "A failure, and a retry",
            shell: vec![curl("order-3", 300, " -H 'Demo-Fail: 500'"), curl("order-3", 300, "")],
            expect: "The service said 500: nothing was paid, the key is free, and the retry pays.",
        },
        Step {
            title: "The answer is lost on the way",
            shell: vec![
                curl("order-4", 400, " -H 'Demo-Slow: 2s' --max-time 1"),
                format!("sleep 2; {}", curl("order-4", 400, "")),
            ],
            expect: "The caller gave up, the work did not: the retry gets the answer that was missed.",
        },
        Step {
            title: "The service hangs up: nobody knows",
            shell: vec![curl("order-5", 500, " -H 'Demo-Drop: yes'"), curl("order-5", 500, ""), count],
            expect: "502, then 409 outcome-unknown. It may have been paid, so it is not paid again.",
        },
        Step {
            title: "A crash",
            shell: vec![
                format!("{} &", curl("order-6", 600, " -H 'Demo-Slow: 30s'")),
                format!("sleep 1; kill -9 {process}"),
                format!("sleep 1; {}", curl("order-6", 600, "")),
                curl("order-1", 100, ""),
            ],
            expect: "The sidecar comes back on the same store. The payment it was killed in is unknown, and held: it \
                     never runs twice. The first payment still replays.",
        },
    ]
}

/// All steps, for somebody who will try them.
pub(super) fn describe(place: &Place, process: u32) -> String {
    let paint = Paint::for_stream(&std::io::stdout());
    let mut lines = vec![String::new(), "Try these in another terminal:".to_owned()];
    for (number, step) in (1..).zip(&steps(place, process)) {
        lines.push(heading(paint, number, step));
        lines.extend(step.shell.iter().map(|line| format!("     {}", paint.paint(Tone::Code, line))));
        lines.push(format!("     → {}", step.expect));
    }
    lines.push(String::new());
    lines.push(format!("What else can be asked is in http://{}/openapi.json.", place.listen));
    lines.push("Ctrl-C ends the demo. `onlyonce demo --tour` tries all of this by itself.".to_owned());
    lines.join("\n")
}

pub(super) fn heading(paint: Paint, number: usize, step: &Step) -> String {
    format!("\n  {}", paint.paint(Tone::Strong, &format!("{number}. {}", step.title)))
}
