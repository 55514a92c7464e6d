//! Buffers of one answer: what was sent is filled again, so a long answer needs no new memory for each message.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dormouse_files::read::Held;

/// Free buffers that are kept, each as long as a piece: as many as may be on their way at once.
const FREE_COUNT_MAX: usize = 6;

/// The free buffers of one answer. They are gone with the last message of it.
#[derive(Debug, Clone, Default)]
pub struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// A message's data. A piece that was read is taken with its buffer; one that is lent is copied.
    pub fn hold(&self, piece: Held<'_>) -> Bytes {
        let (buffer, length) = match piece {
            Held::Read { buffer, length } => (std::mem::replace(buffer, self.take()), length),
            Held::Lent(bytes) => {
                let mut buffer = self.take();
                buffer.clear();
                buffer.extend_from_slice(bytes);
                (buffer, bytes.len())
            }
        };
        Bytes::from_owner(Sent { buffer, length, free: self.clone() })
    }

    fn take(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_COUNT_MAX {
            free.push(buffer);
        }
    }
}

/// A buffer that is on its way.
struct Sent {
    buffer: Vec<u8>,
    length: usize,
    free: Buffers,
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.free.give(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_filled_again() {
        let buffers = Buffers::default();
        let mut buffer = b"0123456789".to_vec();
        let place = buffer.as_ptr();
        let sent = buffers.hold(Held::Read { buffer: &mut buffer, length: 4 });
        assert_eq!((&sent[..], sent.as_ptr(), buffer.len()), (&b"0123"[..], place, 0), "taken, not copied");
        let twin = sent.clone();
        drop(sent);
        assert_eq!(buffers.0.lock().unwrap().len(), 0, "somebody still reads it");
        drop(twin);
        let lent = buffers.hold(Held::Lent(b"abc"));
        assert_eq!((&lent[..], lent.as_ptr()), (&b"abc"[..], place));
    }

    #[test]
    fn few_are_kept() {
        let buffers = Buffers::default();
        let sent: Vec<_> = (0..2 * FREE_COUNT_MAX).map(|_| buffers.hold(Held::Lent(b"x"))).collect();
        drop(sent);
        assert_eq!(buffers.0.lock().unwrap().len(), FREE_COUNT_MAX);
    }
}
