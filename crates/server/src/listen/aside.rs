//! What a connection waits for besides its request: that it is cut off, that its client goes away.
//!
//! Each step of a request wakes the connection's task, and next to none of them has to do with any of these. To ask them all each
//! time costs some of what the step itself does. So they get a waker of their own, which leaves a note that it was they who called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// Tells when something that is waited for aside is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// What calls, and its waker; `None` before the first look.
    bell: Option<(Arc<Bell>, Waker)>,
    /// Whether something new is waited for.
    is_new: bool,
}

#[derive(Debug)]
struct Bell {
    is_rung: AtomicBool,
    /// The task that hears it.
    task: Waker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // ORDER: the note first: the task may look for it as soon as it is woken.
        self.is_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Bell {
    /// Whether it was rung since this was asked last. A look, which is cheap, comes before the change.
    fn was_rung(&self) -> bool {
        self.is_rung.load(Ordering::Acquire) && self.is_rung.swap(false, Ordering::AcqRel)
    }
}

impl Aside {
    /// What is waited for has changed: it is to be looked at.
    pub(super) const fn renew(&mut self) {
        self.is_new = true;
    }

    /// Hands out the context to look with, if there is something to look at: at first, and whenever somebody who was given that
    /// context has called since.
    pub(super) fn called(&mut self, cx: &mut Context<'_>) -> Option<Context<'_>> {
        let is_heard = |(bell, _): &(Arc<Bell>, Waker)| bell.task.will_wake(cx.waker());
        if !self.bell.as_ref().is_some_and(is_heard) {
            // Another task looks, if any did before. Whoever has the old bell gets the new one with the look.
            let bell = Arc::new(Bell { is_rung: AtomicBool::new(false), task: cx.waker().clone() });
            self.bell = Some((Arc::clone(&bell), Waker::from(bell)));
            self.is_new = true;
        }
        let (bell, waker) = self.bell.as_ref()?;
        // INVARIANT: a ring is taken only by whoever looks then.
        let is_rung = bell.was_rung();
        let to_look = std::mem::take(&mut self.is_new) || is_rung;
        to_look.then(|| Context::from_waker(waker))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn task() -> (Arc<Counting>, Waker) {
        let counting = Arc::<Counting>::default();
        (Arc::clone(&counting), Waker::from(counting))
    }

    #[test]
    fn what_waits_aside_is_looked_at_once_and_whenever_it_calls() {
        let (woken, task) = task();
        let (mut aside, mut cx) = (Aside::default(), Context::from_waker(&task));
        let caller = aside.called(&mut cx).expect("at first").waker().clone();
        assert!(aside.called(&mut cx).is_none(), "the task was woken by something else");
        caller.wake_by_ref();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(aside.called(&mut cx).is_some());
        assert!(aside.called(&mut cx).is_none(), "one call is one look");
        aside.renew();
        assert!(aside.called(&mut cx).is_some(), "it waits for something else");
    }

    #[test]
    fn a_call_reaches_the_task_that_looked_last() {
        let ((first, one), (second, other)) = (task(), task());
        let mut aside = Aside::default();
        assert!(aside.called(&mut Context::from_waker(&one)).is_some(), "at first");
        let caller = aside.called(&mut Context::from_waker(&other)).expect("another task looks for itself");
        caller.waker().wake_by_ref();
        let counts = [first, second].map(|counting| counting.0.load(Ordering::Relaxed));
        assert_eq!(counts, [0, 1]);
    }

    #[test]
    fn a_call_before_the_task_looks_again_is_not_lost() {
        let (_, task) = task();
        let (mut aside, mut cx) = (Aside::default(), Context::from_waker(&task));
        let caller = aside.called(&mut cx).expect("at first").waker().clone();
        caller.wake_by_ref();
        caller.wake();
        aside.renew();
        assert!(aside.called(&mut cx).is_some());
        assert!(aside.called(&mut cx).is_none());
    }
}
