//! A chain of qcow2 layers, each of them named by the record.
//!
//! What an image says of its backing file or its data file is never opened: an image could name any file of the host. It is
//! only compared with the record: an image that has a backing file where the record has no further layer, or the other way
//! round, would read as zeros or as somebody else's bytes, so it is refused.
//!
//! Source: QEMU's `docs/interop/qcow2.rst`.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder, file::File as Storage, qcow2::Qcow2, raw::Raw};

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
    has_device: bool,
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
        let mut opened = Vec::new();
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
                    FormatAccess::new(raw.map_err(failed(&layer.path))?)
                }
                (Format::Qcow2, backing) => {
                    check_header(&held.file, &layer.path, backing.is_some())?;
                    let image = Qcow2::<Storage>::builder(storage).backing(backing);
                    let image = image.open(DenyImplicitOpenGate::default());
                    FormatAccess::new(image.map_err(refused(&layer.path))?)
                }
            };
            below = Some(access);
            opened.push(held);
        }
        opened.reverse();
        let top = below.ok_or_else(|| unavailable("no_layers"))?;
        Ok(Self { top, layers: opened, has_device })
    }

    /// Of each layer, see [`LayerFile::opened`].
    pub(crate) fn opened(&self) -> Vec<LayerStamp> {
        self.layers.iter().map(|layer| layer.opened().clone()).collect()
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

fn check_header(file: &File, path: &Path, has_backing: bool) -> Result<(), OpenError> {
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

fn judge(header: &[u8; HEADER_BYTES], has_backing: bool) -> Result<(), Fault> {
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
    Ok(())
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
        self.top.read(buffer, offset)
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
        assert_eq!(judge(&header, has_backing), expect);
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
}
