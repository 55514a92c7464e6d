//! A chain of qcow2 layers, each of them named by the record.
//!
//! What an image says of its backing file or its data file is never opened: an image could name any file of the host. It is
//! only compared with the record: an image that has a backing file where the record has no further layer, or the other way
//! round, would read as zeros or as somebody else's bytes, so it is refused.
//!
//! Source: QEMU's `docs/interop/qcow2.rst`.

mod compressed;

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use imago::{
    DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder, Mapping, StorageExt, file::File as Storage, qcow2::Qcow2,
    raw::Raw,
};

use self::compressed::{Found, Tables};
use crate::{BlockSource, Format, Layer, LayerStamp, OpenError, source::LayerFile};

const HEADER_BYTES: usize = 104;
/// Largest table of the first level that QEMU takes, in bytes.
const TABLE_BYTES_MAX: u64 = 32 << 20;

/// Bits of `incompatible_features`.
mod incompatible {
    /// Reference counts may be wrong, which concerns writers only.
    pub(super) const DIRTY: u64 = 1;
    pub(super) const CORRUPT: u64 = 2;
    pub(super) const DATA_FILE: u64 = 4;
    /// Something else than deflate.
    pub(super) const COMPRESSION: u64 = 8;
    pub(super) const EXTENDED_L2: u64 = 16;
}

/// The layers of one disk, read as one.
pub(crate) struct Chain {
    top: FormatAccess<Storage>,
    layers: Vec<LayerFile>,
    /// Of each layer; nothing of a raw one.
    tables: Vec<Option<Tables>>,
    /// The compressed cluster that was read last: most reads are of a part of one.
    last: Mutex<Option<Cluster>>,
    has_device: bool,
}

/// A compressed cluster, decompressed.
struct Cluster {
    layer: usize,
    /// Where it begins on the disk.
    start: u64,
    bytes: Vec<u8>,
}

fn unavailable(what: &str) -> OpenError {
    OpenError::Unavailable { what: what.to_owned() }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { path, source }
}

impl Chain {
    /// Opens the layers from the last one up; `layers` is not empty.
    pub(crate) fn open(layers: &[Layer]) -> Result<Self, OpenError> {
        let mut below: Option<FormatAccess<Storage>> = None;
        let (mut opened, mut tables) = (Vec::new(), Vec::new());
        let mut has_device = false;
        for layer in layers.iter().rev() {
            let held = LayerFile::open(&layer.path).map_err(failed(&layer.path))?;
            has_device |= held.is_device();
            let storage = Storage::try_from(held.file.try_clone().map_err(failed(&layer.path))?);
            let storage = storage.map_err(failed(&layer.path))?;
            let access = match (layer.format, below.take()) {
                (Format::Raw, Some(_)) => return Err(unavailable("raw_layer_with_backing")),
                (Format::Raw, None) => {
                    let raw = Raw::builder(storage).open(DenyImplicitOpenGate::default());
                    tables.push(None);
                    FormatAccess::new(raw.map_err(failed(&layer.path))?)
                }
                (Format::Qcow2, backing) => {
                    tables.push(Some(check_header(&held.file, &layer.path, backing.is_some())?));
                    let image = Qcow2::<Storage>::builder(storage).backing(backing);
                    let image = image.open(DenyImplicitOpenGate::default());
                    FormatAccess::new(image.map_err(refused(&layer.path))?)
                }
            };
            below = Some(access);
            opened.push(held);
        }
        opened.reverse();
        tables.reverse();
        let top = below.ok_or_else(|| unavailable("no_layers"))?;
        Ok(Self { top, layers: opened, tables, last: Mutex::new(None), has_device })
    }

    /// Of each layer, see [`LayerFile::opened`].
    pub(crate) fn opened(&self) -> Vec<LayerStamp> {
        self.layers.iter().map(|layer| layer.opened().clone()).collect()
    }

    /// Reads the beginning of a buffer that lies in a compressed cluster; gives how much of it that was.
    fn read_compressed(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // At most `layer_count_max` of them.
        for (layer, (file, tables)) in self.layers.iter().zip(&self.tables).enumerate() {
            let Some(tables) = tables else { break };
            let (place, byte_count) = match tables.find(&file.file, offset)? {
                Found::Below => continue,
                Found::Plain => break,
                Found::Compressed { place, byte_count } => (place, byte_count),
            };
            let within = (offset & ((1 << tables.cluster_bits) - 1)) as usize;
            let start = offset - within as u64;
            let count = buffer.len().min((1 << tables.cluster_bits) - within);
            let target = &mut buffer[..count];
            let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it = |known: &&Cluster| (known.layer, known.start) == (layer, start);
            if let Some(known) = last().as_ref().filter(is_it) {
                target.copy_from_slice(&known.bytes[within..within + count]);
                return Ok(count);
            }
            // No lock is held while a cluster is read.
            let bytes = tables.read(&file.file, place, byte_count)?;
            target.copy_from_slice(&bytes[within..within + count]);
            *last() = Some(Cluster { layer, start, bytes });
            return Ok(count);
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "qcow2: a cluster is said to be compressed and is not"))
    }
}

/// What the format's own checks refuse is no failure of the system.
fn refused(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| match source.raw_os_error() {
        Some(_) => OpenError::Io { path, source },
        None => OpenError::Corrupt { what: format!("qcow2 layer {}: {source}", path.display()) },
    }
}

fn check_header(file: &File, path: &Path, has_backing: bool) -> Result<Tables, OpenError> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header[..72], 0).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            OpenError::Corrupt { what: format!("qcow2 layer {}: too short", path.display()) }
        }
        _ => OpenError::Io { path: path.to_owned(), source: error },
    })?;
    // A header of the second version is shorter, and so may be its file.
    let _ = file.read_exact_at(&mut header[72..], 72);
    judge(&header, has_backing).map_err(|fault| match fault {
        Fault::Unavailable(what) => unavailable(what),
        Fault::Corrupt(what) => OpenError::Corrupt { what: format!("qcow2 layer {}: {what}", path.display()) },
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Unavailable(&'static str),
    Corrupt(&'static str),
}

fn judge(header: &[u8; HEADER_BYTES], has_backing: bool) -> Result<Tables, Fault> {
    let word = |at: usize| header[at..at + 4].iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
    let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    if header[..4] != *b"QFI\xFB" {
        return Err(Fault::Corrupt("magic"));
    }
    let features = match word(4) {
        2 => 0,
        3 => long(72),
        _ => return Err(Fault::Unavailable("qcow2_version")),
    };
    let named = [
        (incompatible::CORRUPT, "qcow2_corrupt"),
        (incompatible::DATA_FILE, "qcow2_data_file"),
        (incompatible::COMPRESSION, "qcow2_compression_type"),
        (incompatible::EXTENDED_L2, "qcow2_extended_l2"),
    ];
    if let Some((_, name)) = named.iter().find(|(bit, _)| features & bit != 0) {
        return Err(Fault::Unavailable(name));
    }
    if features & !incompatible::DIRTY != 0 {
        return Err(Fault::Unavailable("qcow2_feature"));
    }
    if word(32) != 0 {
        return Err(Fault::Unavailable("qcow2_encrypted"));
    }
    match (long(8) != 0, has_backing) {
        (true, false) => return Err(Fault::Unavailable("qcow2_backing_not_in_record")),
        (false, true) => return Err(Fault::Unavailable("qcow2_backing_not_in_image")),
        _ => (),
    }
    if !(9..=21).contains(&word(20)) {
        return Err(Fault::Corrupt("cluster size"));
    }
    if u64::from(word(36)) * 8 > TABLE_BYTES_MAX {
        return Err(Fault::Corrupt("table size"));
    }
    Ok(Tables { cluster_bits: word(20), place: long(40), entry_count: u64::from(word(36)) })
}

impl BlockSource for Chain {
    fn len(&self) -> u64 {
        self.top.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        // The chain itself reads zeros past its end.
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        // Every turn reads at least a byte.
        while done < buffer.len() {
            let at = offset + done as u64;
            let rest = &mut buffer[done..];
            let (mapping, length) = self.top.get_mapping(at, rest.len() as u64)?;
            let count = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
            done += match mapping {
                Mapping::Special { .. } => self.read_compressed(at, &mut rest[..count])?,
                Mapping::Raw { storage, offset, .. } if count > 0 => {
                    storage.read(&mut rest[..count], offset)?;
                    count
                }
                Mapping::Zero { .. } if count > 0 => {
                    rest[..count].fill(0);
                    count
                }
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        Ok(())
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        self.layers.iter().map(LayerFile::stamp).collect()
    }

    fn stamp_tells(&self) -> bool {
        !self.has_device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut [u8; HEADER_BYTES]), has_backing: bool, expect: Result<(), Fault>) {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(b"QFI\xFB\0\0\0\x03");
        header[23] = 16;
        change(&mut header);
        assert_eq!(judge(&header, has_backing).map(drop), expect);
    }

    #[test]
    fn headers_that_are_refused() {
        check(|_| (), false, Ok(()));
        check(|header| header[79] = 1, false, Ok(()));
        check(|header| header[79] = 8, false, Err(Fault::Unavailable("qcow2_compression_type")));
        check(|header| header[79] = 16, false, Err(Fault::Unavailable("qcow2_extended_l2")));
        check(|header| header[0] = 0, false, Err(Fault::Corrupt("magic")));
        check(|header| header[7] = 4, false, Err(Fault::Unavailable("qcow2_version")));
        check(|header| header[79] = 2, false, Err(Fault::Unavailable("qcow2_corrupt")));
        check(|header| header[79] = 4, false, Err(Fault::Unavailable("qcow2_data_file")));
        check(|header| header[72] = 1, false, Err(Fault::Unavailable("qcow2_feature")));
        check(|header| header[35] = 1, false, Err(Fault::Unavailable("qcow2_encrypted")));
        check(|header| header[15] = 104, false, Err(Fault::Unavailable("qcow2_backing_not_in_record")));
        check(|_| (), true, Err(Fault::Unavailable("qcow2_backing_not_in_image")));
        check(|header| header[15] = 104, true, Ok(()));
        check(|header| header[23] = 22, false, Err(Fault::Corrupt("cluster size")));
        check(|header| header[36] = 1, false, Err(Fault::Corrupt("table size")));
        // In the second version there are no features yet.
        check(
            |header| {
                header[7] = 2;
                header[79] = 4;
            },
            false,
            Ok(()),
        );
    }

    /// What QEMU makes of an image, or nothing where it cannot read it; an error where there is no QEMU.
    fn of_qemu(image: &Path, flat: &Path) -> Result<Option<Vec<u8>>, String> {
        let arguments = ["convert", "-f", "qcow2", "-O", "raw"].map(std::ffi::OsStr::new);
        let mut command = std::process::Command::new("qemu-img");
        let output =
            command.args(arguments).arg(image).arg(flat).output().map_err(|error| format!("qemu-img: {error}"))?;
        Ok(output.status.success().then(|| std::fs::read(flat).unwrap()))
    }

    #[test]
    fn compressed_clusters_are_what_qemu_makes_of_them() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let mut state = 1_u64;
        let mut next = move |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let content: Vec<u8> =
            (0..300_000_usize).map(|at| if at % 5_000 < 900 { next(256) as u8 } else { (at / 40) as u8 }).collect();
        std::fs::write(path("flat"), &content[..299_520]).unwrap();
        let (mut read, mut refused) = (0, 0);
        for cluster in ["cluster_size=4k", "cluster_size=64k"] {
            let mut command = std::process::Command::new("qemu-img");
            let command = command.args(["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", cluster]);
            match command.arg(path("flat")).arg(path("image")).output() {
                Ok(output) => assert!(output.status.success(), "{output:?}"),
                Err(error) => return eprintln!("skipped: qemu-img: {error}"),
            }
            let layers = [Layer { path: path("image"), format: Format::Qcow2 }];
            let good = std::fs::read(path("image")).unwrap();
            let chain = Chain::open(&layers).unwrap();
            let tables = chain.tables[0].unwrap();
            let size = 1_u64 << tables.cluster_bits;
            let found =
                (0..chain.len()).step_by(size as usize).map(|at| tables.find(&chain.layers[0].file, at).unwrap());
            let streams: Vec<(u64, usize)> = found
                .filter_map(|found| match found {
                    Found::Compressed { place, byte_count } => Some((place, byte_count)),
                    _ => None,
                })
                .collect();
            assert!(streams.len() > 3, "{cluster}: {streams:?}");
            for round in 0..60 {
                let mut bytes = good.clone();
                for _ in 0..round.min(3) {
                    let (place, byte_count) = streams[next(streams.len())];
                    // Most of what a stream takes is at its beginning.
                    let near = 1 + next(byte_count);
                    let at = place as usize + next(near);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << next(8);
                    }
                }
                std::fs::write(path("image"), bytes).unwrap();
                let expect = of_qemu(&path("image"), &path("theirs")).unwrap();
                let chain = Chain::open(&layers).unwrap();
                let mut own = vec![0xEE; chain.len() as usize];
                // In pieces, each of which may begin and end inside a cluster.
                let (mut at, mut result) = (0, Ok(()));
                while at < own.len() && result.is_ok() {
                    let end = own.len().min(at + 1 + next(30_000));
                    result = chain.read_at(at as u64, &mut own[at..end]);
                    at = end;
                }
                match (result, expect) {
                    (Ok(()), Some(expect)) => {
                        assert!(own == expect, "{cluster}, round {round}: other bytes");
                        read += 1;
                    }
                    (Err(error), None) => {
                        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{cluster}, round {round}: {error}");
                        refused += 1;
                    }
                    (own, expect) => panic!("{cluster}, round {round}: {own:?}, QEMU reads: {}", expect.is_some()),
                }
            }
        }
        assert!(read > 10 && refused > 10, "{read} were read and {refused} refused");
    }
}
