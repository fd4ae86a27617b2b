//! What an evaluation has cost so far, and the limit of it.

use super::{EvaluationError, MAX_COST};

#[derive(Debug, Default)]
pub(super) struct Cost(u64);

impl Cost {
    pub(super) fn spend(&mut self, cost: u64) -> Result<(), EvaluationError> {
        self.0 = self.0.saturating_add(cost);
        if self.0 > MAX_COST { Err(EvaluationError::TooExpensive) } else { Ok(()) }
    }
}
