//! A handle of transfers that follow each other on one set and are measured as one.

use std::sync::Arc;

use crate::data::{
    context::SetContext,
    sampling::{
        batch::BatchShared,
        sample::{Progress, Sample},
    },
};

/// A view of a batch of transfers; its totals begin at 0 with it. Keeps nothing running.
#[derive(Clone)]
pub struct TransferBatch {
    shared: Arc<BatchShared>,
    context: Arc<SetContext>,
}

impl TransferBatch {
    pub(crate) fn begin(context: &Arc<SetContext>, sends: bool) -> Self {
        Self {
            shared: context.carrying.begin_batch(sends),
            context: Arc::clone(context),
        }
    }

    /// Numbers of now.
    pub fn progress(&self) -> Progress {
        self.context.carrying.progress_of(&self.shared)
    }

    /// Totals of now.
    pub fn sample(&self) -> Sample {
        (self.context.carrying).sample_of(&self.shared, &self.context.clocks)
    }
}
