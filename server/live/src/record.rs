//! What the journal says: an intent before a change, and how it ended; and the bytes of that.
//!
//! Numbers are little-endian; a text is its length in 4 bytes and its bytes. A record that does not decode is no record:
//! the journal ends there.

use dormouse_files::{
    change::{PlaceDone, RemoveDone, WriteDone},
    meta::{FileType, Meta, Time},
    patch::PatchDone,
    path::TreePath,
    revision::Revision,
    stat::Entry,
};

/// Longest record, in bytes: two paths of 4,095 bytes and what else an answer holds.
pub(crate) const RECORD_BYTES_MAX: usize = 24 << 10;

/// A stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Patch(PatchDone),
    Write(WriteDone),
    Remove(RemoveDone),
    Place(PlaceDone),
}

/// What is about to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intent {
    pub(crate) key: String,
    pub(crate) request: [u8; 32],
    /// Seconds since 1970.
    pub(crate) at: u64,
    pub(crate) action: Action,
    /// The directory of the name that changes.
    pub(crate) parent: TreePath,
    pub(crate) parent_inode: u64,
    pub(crate) name: Vec<u8>,
    /// The name in the state directory.
    pub(crate) stage: String,
    /// Of what is put into place, or of what is taken away.
    pub(crate) inode: u64,
    /// As if it were done.
    pub(crate) answer: Answer,
}

/// Which way a name changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// The staged file is exchanged with the one at the name, whose content has this revision and inode.
    Replace { base: Revision, base_inode: u64 },
    /// The staged file or directory is renamed to the name, which is free.
    Create,
    /// What is at the name is renamed into the state directory.
    Remove,
    /// An empty directory is removed where it is.
    RemoveEmpty,
    /// What is at the name is renamed to another one.
    Move { new_parent: TreePath, new_name: Vec<u8> },
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Intent(Intent),
    Done(Done),
    Abort { key: String },
}

/// A change that was done, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) key: String,
    pub(crate) request: [u8; 32],
    /// Seconds since 1970.
    pub(crate) at: u64,
    pub(crate) answer: Answer,
}

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Writer(Vec::with_capacity(512));
        match self {
            Self::Intent(intent) => {
                to.byte(1);
                to.text(intent.key.as_bytes());
                to.0.extend_from_slice(&intent.request);
                to.number(intent.at);
                to.action(&intent.action);
                to.text(intent.parent.as_bytes());
                to.number(intent.parent_inode);
                to.text(&intent.name);
                to.text(intent.stage.as_bytes());
                to.number(intent.inode);
                to.answer(&intent.answer);
            }
            Self::Done(done) => {
                to.byte(2);
                to.text(done.key.as_bytes());
                to.0.extend_from_slice(&done.request);
                to.number(done.at);
                to.answer(&done.answer);
            }
            Self::Abort { key } => {
                to.byte(3);
                to.text(key.as_bytes());
            }
        }
        to.0
    }

    /// Nothing where the bytes are no record.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let record = match from.byte()? {
            1 => Self::Intent(Intent {
                key: from.string()?,
                request: from.array()?,
                at: from.number()?,
                action: from.action()?,
                parent: from.path()?,
                parent_inode: from.number()?,
                name: from.text()?.to_vec(),
                stage: from.string()?,
                inode: from.number()?,
                answer: from.answer()?,
            }),
            2 => Self::Done(Done {
                key: from.string()?,
                request: from.array()?,
                at: from.number()?,
                answer: from.answer()?,
            }),
            3 => Self::Abort { key: from.string()? },
            _ => return None,
        };
        from.0.is_empty().then_some(record)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        // Names, paths and keys: the longest is 4,095 bytes.
        self.0.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.0.extend_from_slice(text);
    }

    fn revision(&mut self, revision: Option<&Revision>) {
        self.flag(revision.is_some());
        if let Some(revision) = revision {
            self.0.extend_from_slice(revision.digest());
        }
    }

    fn action(&mut self, action: &Action) {
        match action {
            Action::Replace { base, base_inode } => {
                self.byte(1);
                self.0.extend_from_slice(base.digest());
                self.number(*base_inode);
            }
            Action::Create => self.byte(2),
            Action::Remove => self.byte(3),
            Action::RemoveEmpty => self.byte(4),
            Action::Move { new_parent, new_name } => {
                self.byte(5);
                self.text(new_parent.as_bytes());
                self.text(new_name);
            }
        }
    }

    fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Patch(done) => {
                self.byte(1);
                self.0.extend_from_slice(done.revision.digest());
                self.revision(done.previous_revision.as_ref());
                self.number(done.bytes_written);
                self.flag(done.durable);
                self.number(u64::from(done.replacements));
                self.entry(&done.entry);
                self.flag(done.replaced_open_file);
            }
            Answer::Write(done) => {
                self.byte(2);
                self.0.extend_from_slice(done.revision.digest());
                self.revision(done.previous_revision.as_ref());
                self.number(done.bytes_written);
                self.flag(done.durable);
                self.entry(&done.entry);
            }
            Answer::Remove(done) => {
                self.byte(3);
                self.revision(done.previous_revision.as_ref());
                self.flag(done.durable);
            }
            Answer::Place(done) => {
                self.byte(4);
                self.entry(&done.entry);
                self.flag(done.durable);
            }
        }
    }

    fn entry(&mut self, entry: &Entry) {
        self.text(entry.path.as_bytes());
        let meta = &entry.meta;
        self.byte(kind_number(meta.kind));
        self.number(meta.size_bytes);
        for number in [meta.mode, meta.uid, meta.gid, meta.link_count] {
            self.0.extend_from_slice(&number.to_le_bytes());
        }
        for time in [meta.modify_time, meta.change_time] {
            self.number(time.seconds.cast_unsigned());
            self.0.extend_from_slice(&time.nanoseconds.to_le_bytes());
        }
        self.number(meta.inode);
        self.flag(entry.link_target.is_some());
        if let Some(target) = &entry.link_target {
            self.text(target);
        }
        self.revision(entry.revision.as_ref());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn short(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.short()?).ok()?;
        self.take(length)
    }

    fn string(&mut self) -> Option<String> {
        String::from_utf8(self.text()?.to_vec()).ok()
    }

    fn path(&mut self) -> Option<TreePath> {
        TreePath::parse(self.text()?).ok()
    }

    fn digest(&mut self) -> Option<Revision> {
        Some(Revision::from_digest(self.array()?))
    }

    fn revision(&mut self) -> Option<Option<Revision>> {
        Some(if self.flag()? { Some(self.digest()?) } else { None })
    }

    fn action(&mut self) -> Option<Action> {
        Some(match self.byte()? {
            1 => Action::Replace { base: self.digest()?, base_inode: self.number()? },
            2 => Action::Create,
            3 => Action::Remove,
            4 => Action::RemoveEmpty,
            5 => Action::Move { new_parent: self.path()?, new_name: self.text()?.to_vec() },
            _ => return None,
        })
    }

    fn answer(&mut self) -> Option<Answer> {
        Some(match self.byte()? {
            1 => Answer::Patch(PatchDone {
                revision: self.digest()?,
                previous_revision: self.revision()?,
                bytes_written: self.number()?,
                durable: self.flag()?,
                replacements: u32::try_from(self.number()?).ok()?,
                entry: self.entry()?,
                replaced_open_file: self.flag()?,
                replayed: false,
            }),
            2 => Answer::Write(WriteDone {
                revision: self.digest()?,
                previous_revision: self.revision()?,
                bytes_written: self.number()?,
                durable: self.flag()?,
                entry: self.entry()?,
                replayed: false,
            }),
            3 => Answer::Remove(RemoveDone {
                previous_revision: self.revision()?,
                durable: self.flag()?,
                replayed: false,
            }),
            4 => Answer::Place(PlaceDone { entry: self.entry()?, durable: self.flag()?, replayed: false }),
            _ => return None,
        })
    }

    fn entry(&mut self) -> Option<Entry> {
        Some(Entry {
            path: self.path()?,
            meta: Meta {
                kind: kind_of_number(self.byte()?)?,
                size_bytes: self.number()?,
                mode: self.short()?,
                uid: self.short()?,
                gid: self.short()?,
                link_count: self.short()?,
                modify_time: Time { seconds: self.number()?.cast_signed(), nanoseconds: self.short()? },
                change_time: Time { seconds: self.number()?.cast_signed(), nanoseconds: self.short()? },
                inode: self.number()?,
            },
            link_target: if self.flag()? { Some(self.text()?.to_vec()) } else { None },
            revision: self.revision()?,
        })
    }
}

fn kind_number(kind: FileType) -> u8 {
    match kind {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::Symlink => 3,
        FileType::Fifo => 4,
        FileType::Socket => 5,
        FileType::CharacterDevice => 6,
        FileType::BlockDevice => 7,
    }
}

fn kind_of_number(number: u8) -> Option<FileType> {
    Some(match number {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::Symlink,
        4 => FileType::Fifo,
        5 => FileType::Socket,
        6 => FileType::CharacterDevice,
        7 => FileType::BlockDevice,
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(path: &str) -> Entry {
        Entry {
            path: TreePath::parse(path.as_bytes()).unwrap(),
            meta: Meta {
                kind: FileType::Regular,
                size_bytes: 3,
                mode: 0o4755,
                uid: 1,
                gid: 2,
                link_count: 1,
                modify_time: Time { seconds: -5, nanoseconds: 7 },
                change_time: Time { seconds: 5, nanoseconds: 999_999_999 },
                inode: 42,
            },
            link_target: None,
            revision: Some(Revision::of(b"abc")),
        }
    }

    fn samples() -> Vec<Record> {
        let patch = Answer::Patch(PatchDone {
            revision: Revision::of(b"a"),
            previous_revision: None,
            bytes_written: 1,
            durable: true,
            replacements: 9,
            entry: entry("/d/f"),
            replayed: false,
            replaced_open_file: true,
        });
        let link = Entry { link_target: Some(b"to\xff".to_vec()), revision: None, ..entry("/l") };
        let place = Answer::Place(PlaceDone { entry: link, durable: false, replayed: false });
        let base = Action::Replace { base: Revision::of(b"b"), base_inode: 8 };
        let to = Action::Move { new_parent: TreePath::root(), new_name: vec![0xff; 255] };
        let mut records = vec![Record::Abort { key: "k".to_owned() }];
        for (action, answer) in
            [(base, patch.clone()), (Action::Create, patch), (to, place.clone()), (Action::Remove, place)]
        {
            records.push(Record::Intent(Intent {
                key: "key".to_owned(),
                request: [3; 32],
                at: 1,
                action,
                parent: TreePath::parse(b"/d").unwrap(),
                parent_inode: 2,
                name: b"f".to_vec(),
                stage: "s1".to_owned(),
                inode: 3,
                answer,
            }));
        }
        records
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        for record in samples() {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn a_cut_or_prolonged_record_is_none() {
        for record in samples() {
            let bytes = record.encode();
            for length in 0..bytes.len() {
                assert_eq!(Record::decode(&bytes[..length]), None);
            }
            assert_eq!(Record::decode(&[bytes.as_slice(), b"x"].concat()), None);
        }
    }

    #[test]
    fn the_longest_record_is_within_the_bound() {
        let long = [b"/".to_vec(), [vec![b'a'; 254], b"/".to_vec()].concat().repeat(17)].concat();
        let path = TreePath::parse(&long[..4094]).unwrap();
        let entry = Entry { path: path.clone(), link_target: Some(vec![b'a'; 4095]), ..entry("/") };
        let intent = Record::Intent(Intent {
            key: "k".repeat(64),
            request: [0; 32],
            at: 0,
            action: Action::Move { new_parent: path.clone(), new_name: vec![b'a'; 255] },
            parent: path,
            parent_inode: 0,
            name: vec![b'a'; 255],
            stage: "s".repeat(17),
            inode: 0,
            answer: Answer::Place(PlaceDone { entry, durable: true, replayed: false }),
        });
        assert!(intent.encode().len() < RECORD_BYTES_MAX);
    }
}
