//! Which part of a disk holds the file system.

use std::sync::Arc;

use crate::{BlockSource, OpenError, Partition};

/// The part that the record names.
pub(crate) fn select(whole: Arc<dyn BlockSource>, wanted: &Partition) -> Result<Arc<dyn BlockSource>, OpenError> {
    let _ = (whole, wanted);
    Err(OpenError::Unavailable { what: "partition".to_owned() })
}
