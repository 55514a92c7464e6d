//! The disk of a suspended workspace, read straight from its image: no root, no mount, and never a write.
//!
//! Everything on the disk is untrusted: a guest wrote it. So every number is checked before it is used, nothing is
//! allocated by a number that the disk names, and every walk has a bound in [`DiskLimits`]. What a disk is, where its
//! layers are and which partition is meant come from the workspace's record ([`DiskSpec`]), never from content.
//!
//! ```text
//! source (raw file, block device, qcow2 chain) → partition → ext4 (journal replayed in memory) → Volume: Tree
//! ```

mod ext4;
mod limits;
mod partition;
mod qcow2;
mod source;
mod spec;
mod volume;

pub use ext4::xattr::Xattr;
pub use limits::DiskLimits;
pub use partition::select as select_partition;
pub use source::{BlockSource, LayerStamp, MemorySource, open_layer};
pub use spec::{Consistency, DiskSpec, Format, Layer, OpenError, Partition, Unsealed};
pub use volume::{Cloning, DirectoryId, OpenFile, Probe, Reading, Volume, probe};
