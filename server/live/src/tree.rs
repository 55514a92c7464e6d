//! A directory of this host as a `Tree`.

/// A directory of this host.
#[derive(Clone)]
pub struct LiveTree;
