//! What a call may spend, and by which door it ends early.
//!
//! Engines have no clock: they ask a [`Budget`] as they go, and the edge answers. They push into a [`Sink`], and a sink
//! that breaks ends them. There is no other way to cancel.

use std::ops::ControlFlow;

/// Why a call must end now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The host's own time for this kind of call has passed.
    Time,
    /// The caller's deadline has passed, or is so near that an answer would just arrive.
    Deadline,
    /// Nobody waits for the answer any more.
    Gone,
}

/// Asked inside every loop whose length a caller or an image decides; must be cheap (tens of nanoseconds).
pub trait Budget: Send + Sync {
    /// Nothing while there is time left.
    fn spent(&self) -> Option<Spent>;
}

/// A budget without an end, for work whose bound is its size.
pub struct Unbounded;

impl Budget for Unbounded {
    fn spent(&self) -> Option<Spent> {
        None
    }
}

/// Where an engine's answers go, in order. `Break` ends the engine: the caller has gone, or has enough.
pub trait Sink<T> {
    /// Takes the next item; may block while the receiver is slow.
    fn push(&mut self, item: T) -> ControlFlow<()>;
}

impl<T, F: FnMut(T) -> ControlFlow<()>> Sink<T> for F {
    fn push(&mut self, item: T) -> ControlFlow<()> {
        self(item)
    }
}
