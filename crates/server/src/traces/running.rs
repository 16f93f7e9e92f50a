//! The traces of what runs in this process, so that whoever is told "it is running" can be linked to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use onlyonce_core::RecordId;
use opentelemetry::trace::SpanContext;

/// As many entries as executions run here.
#[derive(Debug, Clone, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<RecordId, SpanContext>>>);

impl Running {
    /// Says that `id` runs in `context`, for as long as the guard lives.
    pub(super) fn enter(&self, id: RecordId, context: SpanContext) -> Entered {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, context.clone());
        Entered { running: self.clone(), id, context }
    }

    /// Where `id` runs.
    pub(super) fn find(&self, id: &RecordId) -> Option<SpanContext> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }
}

/// An execution that runs.
#[derive(Debug)]
pub(super) struct Entered {
    running: Running,
    id: RecordId,
    context: SpanContext,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut running = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A later attempt may have taken the place.
        if running.get(&self.id).is_some_and(|context| *context == self.context) {
            running.remove(&self.id);
        }
    }
}
