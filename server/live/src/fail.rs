//! Where a test may stop a change as a power cut would: between two numbered steps of it.
//!
//! In a release build a step is always passed, and nothing of this is left.

use dormouse_files::Fault;

/// Told the name of each step; answers whether everything stops there.
#[cfg(any(test, feature = "failpoints"))]
pub type StopHook = std::sync::Arc<dyn Fn(&'static str) -> bool + Send + Sync>;

/// A rule of the commit that a negative control leaves out: a test of durability that passes without it proves nothing.
#[cfg(any(test, feature = "failpoints"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The staged file is flushed.
    FileFlush,
    /// The directories are flushed before the answer.
    DirectoryFlush,
    /// An intent is durable before the exchange.
    Intent,
    /// What was displaced stays until the answer is durable.
    DisplacedStays,
    /// The staged file is flushed after it has its name, and the state directory after that.
    NameBeforeFlush,
}

/// A disk that a test may break: from then on every flush of a directory or of the journal fails.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    #[cfg(any(test, feature = "failpoints"))]
    broken: Option<std::sync::Arc<std::sync::atomic::AtomicBool>>,
}

impl Disk {
    #[cfg(any(test, feature = "failpoints"))]
    pub(crate) fn check(&self) -> Result<(), rustix::io::Errno> {
        let broken = self.broken.as_ref().is_some_and(|broken| broken.load(std::sync::atomic::Ordering::SeqCst));
        if broken { Err(rustix::io::Errno::IO) } else { Ok(()) }
    }

    #[cfg(not(any(test, feature = "failpoints")))]
    #[inline]
    pub(crate) fn check(&self) -> Result<(), rustix::io::Errno> {
        Ok(())
    }
}

/// The steps of one workspace.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) disk: Disk,
    #[cfg(any(test, feature = "failpoints"))]
    hook: Option<StopHook>,
    #[cfg(any(test, feature = "failpoints"))]
    left_out: Option<Rule>,
    #[cfg(any(test, feature = "failpoints"))]
    stopped: std::sync::atomic::AtomicBool,
}

#[cfg(any(test, feature = "failpoints"))]
impl Steps {
    pub(crate) fn with_hook(hook: StopHook) -> Self {
        Self { hook: Some(hook), ..Self::default() }
    }

    #[cfg(test)]
    pub(crate) fn on_disk(hook: StopHook, broken: std::sync::Arc<std::sync::atomic::AtomicBool>) -> Self {
        Self { disk: Disk { broken: Some(broken) }, ..Self::with_hook(hook) }
    }

    pub(crate) fn without(rule: Rule) -> Self {
        Self { left_out: Some(rule), ..Self::default() }
    }

    /// Whether a rule holds, as it always does but in a negative control.
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }

    /// The change has come to this step. Once stopped, every step after it stops too.
    pub(crate) fn pass(&self, step: &'static str) -> Result<(), Fault> {
        use std::sync::atomic::Ordering::SeqCst;
        if !self.stopped.load(SeqCst) && self.hook.as_ref().is_some_and(|hook| hook(step)) {
            self.stopped.store(true, SeqCst);
        }
        if self.stopped.load(SeqCst) { Err(Fault::Internal("stopped by a test")) } else { Ok(()) }
    }

    /// Whether what a failure would tidy may be tidied: a machine without power tidies nothing.
    pub(crate) fn may_tidy(&self) -> bool {
        !self.stopped.load(std::sync::atomic::Ordering::SeqCst)
    }
}

#[cfg(not(any(test, feature = "failpoints")))]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    FileFlush,
    DirectoryFlush,
    Intent,
    DisplacedStays,
    NameBeforeFlush,
}

#[cfg(not(any(test, feature = "failpoints")))]
impl Steps {
    #[inline]
    pub(crate) fn keeps(&self, _rule: Rule) -> bool {
        true
    }

    #[inline]
    pub(crate) fn pass(&self, _step: &'static str) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    pub(crate) fn may_tidy(&self) -> bool {
        true
    }
}
