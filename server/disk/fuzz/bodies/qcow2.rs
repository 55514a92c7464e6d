//! A qcow2 layer, alone or over a raw one: the first byte says which.

use std::{cell::RefCell, fs, path::PathBuf};

use dormouse_disk::{DiskSpec, Format, Layer, Unsealed, Volume};

use super::{
    exercise::{limits, walk},
    packed::unpack,
};

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

thread_local! {
    // Layers are files: one folder for all the inputs of a thread.
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

pub fn body(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    PLACE.with_borrow_mut(|place| {
        let place = place.get_or_insert_with(|| {
            let place = Place { folder: tempfile::tempdir().expect("a temporary folder") };
            fs::write(place.path("base"), vec![0x5A; 64 << 10]).expect("the base is written");
            place
        });
        let top = place.path("top");
        let mut layer = unpack(rest);
        // A file is written for each input.
        layer.truncate(512 << 10);
        fs::write(&top, layer).expect("the layer is written");
        let mut layers = vec![Layer { path: top, format: Format::Qcow2 }];
        if how & 1 != 0 {
            layers.push(Layer { path: place.path("base"), format: Format::Raw });
        }
        if let Ok(volume) = Volume::open(&DiskSpec { layers, partition: None }, Unsealed::Crash, &limits()) {
            walk(&volume);
        }
    });
}
