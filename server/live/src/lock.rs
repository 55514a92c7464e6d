//! One change at a time for each name of each directory: the lock is on the parent's device and inode and the name, not on
//! a path's spelling, since one directory may be reached by many.

use std::{
    collections::HashSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::tree::Identity;

/// A name in a directory.
pub(crate) type Slot = (Identity, Vec<u8>);

/// The locks that are held now: at most two for each call in flight.
#[derive(Default)]
pub(crate) struct Locks {
    held: Mutex<HashSet<Slot>>,
    freed: Condvar,
}

/// Some locked names; free again when dropped.
pub(crate) struct Locked<'a> {
    locks: &'a Locks,
    slots: Vec<Slot>,
}

impl Locks {
    /// Locks one name, waiting while another change holds it.
    pub(crate) fn one(&self, slot: Slot) -> Locked<'_> {
        self.all(vec![slot])
    }

    /// Locks two names at once, so that no two calls can wait for each other.
    pub(crate) fn two(&self, first: Slot, second: Slot) -> Locked<'_> {
        let slots = if first == second { vec![first] } else { vec![first, second] };
        self.all(slots)
    }

    fn all(&self, slots: Vec<Slot>) -> Locked<'_> {
        let mut held = self.lock();
        while slots.iter().any(|slot| held.contains(slot)) {
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.extend(slots.iter().cloned());
        Locked { locks: self, slots }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Slot>> {
        // The set is whole between any two of its calls, so a panic elsewhere leaves nothing half done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.lock();
        for slot in &self.slots {
            held.remove(slot);
        }
        drop(held);
        self.locks.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_one_holds_a_name() {
        let (locks, inside, total) = (Locks::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        let slot = |name: &[u8]| (Identity { device: 1, inode: 2 }, name.to_vec());
        std::thread::scope(|scope| {
            for turn in 0..8 {
                let (locks, inside, total, slot) = (&locks, &inside, &total, &slot);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let names: [&[u8]; 2] = if turn % 2 == 0 { [b"a", b"b"] } else { [b"b", b"a"] };
                        let _locked = locks.two(slot(names[0]), slot(names[1]));
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        total.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::SeqCst), 1_600);
        drop(locks.one(slot(b"a")));
        drop(locks.two(slot(b"a"), slot(b"a")));
    }
}
