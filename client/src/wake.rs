//! How a workspace that does not run is woken when a call needs it running.
//!
//! A library cannot know who may start machines, so the caller hands it a way. It is used at most once in a call.

use std::{future::Future, pin::Pin};

/// Why a workspace could not be woken, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WakeError(pub String);

/// The future of [`Waker::wake`].
pub type Waking<'a> = Pin<Box<dyn Future<Output = Result<(), WakeError>> + Send + 'a>>;

/// A way to wake a workspace.
pub trait Waker: Send + Sync {
    /// Returns once the workspace runs or is about to: the call that needs it is then made again, and waits out the rest of
    /// a resume itself. Dropped when the call's deadline passes.
    fn wake<'a>(&'a self, workspace: &'a str) -> Waking<'a>;
}
