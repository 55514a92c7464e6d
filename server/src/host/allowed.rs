//! What a workspace may be made of: a spec's shape, its paths resolved once, and what the configuration lets a caller name.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use dormouse_disk::{DiskLimits, OpenError};
use dormouse_files::path::TreePath;

use crate::host::{
    Host,
    error::HostFault,
    spec::{DiskPartition, Guest, GuestAddress, Spec},
    store::SPEC_BYTES_MAX,
};

/// Most disks of one machine, and most layers of one disk.
const DISK_COUNT_MAX: usize = 64;

/// Longest token of a guest, in bytes.
pub const TOKEN_BYTES_MAX: usize = 1_024;

impl Host {
    /// A guest's address that a caller names, checked and resolved as at the registration.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn checked_guest(&self, guest: &Guest) -> Result<Option<Guest>, HostFault> {
        let named = |field: String| field.trim_start_matches("spec.machine.").to_owned();
        let spec = Spec::Machine { guest: Some(guest.clone()), disks: Vec::new() };
        let spec = resolved(&spec).map_err(|(field, what)| HostFault::invalid(named(field), what))?;
        self.check_allowed(&spec).map_err(|fault| match fault {
            HostFault::Invalid { field, message } => HostFault::Invalid { field: named(field), message },
            other => other,
        })?;
        match spec {
            Spec::Machine { guest, .. } => Ok(guest),
            Spec::Directory { .. } => Ok(None),
        }
    }

    /// Whether a caller may name these files: each under one of the configured roots.
    pub(super) fn check_allowed(&self, spec: &Spec) -> Result<(), HostFault> {
        let settings = self.settings();
        let under = |path: &Path, roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
        match spec {
            Spec::Directory { root } if under(root, &settings.roots) => Ok(()),
            Spec::Directory { .. } => Err(HostFault::invalid("spec.directory.root", outside("directory", "roots"))),
            Spec::Machine { guest, disks } => {
                for (index, disk) in disks.iter().enumerate() {
                    for (layer_index, layer) in disk.layers.iter().enumerate() {
                        let device = fs::metadata(&layer.path).is_ok_and(|meta| meta.file_type().is_block_device());
                        let roots = if device { &settings.device_roots } else { &settings.roots };
                        if !under(&layer.path, roots) {
                            let kind = if device { "device_roots" } else { "roots" };
                            return Err(HostFault::invalid(
                                format!("spec.machine.disks[{index}].layers[{layer_index}].path"),
                                outside("path", kind),
                            ));
                        }
                    }
                }
                match guest.as_ref().map(|guest| &guest.address) {
                    None | Some(GuestAddress::Vsock { .. }) => Ok(()),
                    Some(GuestAddress::HybridVsock { socket, .. } | GuestAddress::Unix(socket)) => {
                        if under(socket, &settings.socket_roots) {
                            return Ok(());
                        }
                        Err(HostFault::invalid("spec.machine.guest", outside("socket", "socket_roots")))
                    }
                    Some(GuestAddress::Tcp(address)) => {
                        let port = address.parse::<SocketAddr>().map(|address| address.port()).unwrap_or_default();
                        match settings.guest_tcp_ports {
                            Some((first, last)) if (first..=last).contains(&port) => Ok(()),
                            _ => {
                                let what = "the port is none of the host's guest_tcp_ports; name one of them, or let the \
                                            host's operator widen that range in its configuration";
                                Err(HostFault::invalid("spec.machine.guest.tcp", what))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A spec whose shape is sound and whose paths are resolved once, links included, to what is kept; else the field and
/// what is wrong with it.
pub(super) fn resolved(spec: &Spec) -> Result<Spec, (String, String)> {
    let resolve = |path: &Path, field: &str| {
        if !path.is_absolute() {
            return Err((field.to_owned(), format!("{} is not absolute", path.display())));
        }
        fs::canonicalize(path).map_err(|error| (field.to_owned(), format!("{}: {error}", path.display())))
    };
    match spec {
        Spec::Directory { root } => {
            let root = resolve(root, "spec.directory.root")?;
            if !root.is_dir() {
                return Err(("spec.directory.root".to_owned(), format!("{} is not a directory", root.display())));
            }
            Ok(Spec::Directory { root })
        }
        Spec::Machine { guest, disks } => {
            let mut guest = guest.clone();
            let printable = |token: &str| token.bytes().all(|byte| byte.is_ascii_graphic());
            if guest.as_ref().is_some_and(|guest| guest.token.len() > TOKEN_BYTES_MAX || !printable(&guest.token)) {
                let what = format!("a token is at most {TOKEN_BYTES_MAX} printable ASCII characters");
                return Err(("spec.machine.guest.guest_token".to_owned(), what));
            }
            match guest.as_mut().map(|guest| &mut guest.address) {
                Some(GuestAddress::HybridVsock { socket, .. } | GuestAddress::Unix(socket)) => {
                    // The socket comes and goes with its machine; its directory must be there.
                    let field = "spec.machine.guest";
                    let (Some(parent), Some(name)) = (socket.parent(), socket.file_name()) else {
                        return Err((field.to_owned(), format!("{} is no socket's path", socket.display())));
                    };
                    *socket = resolve(parent, field)?.join(name);
                }
                Some(GuestAddress::Vsock { cid, .. }) if *cid < 3 => {
                    return Err(("spec.machine.guest.vsock.cid".to_owned(), "a machine's cid is 3 or more".to_owned()));
                }
                Some(GuestAddress::Tcp(address)) => match address.parse::<SocketAddr>() {
                    Ok(address) if address.ip().is_loopback() => {}
                    _ => {
                        let what = format!("{address} is not a loopback address with a port");
                        return Err(("spec.machine.guest.tcp".to_owned(), what));
                    }
                },
                _ => {}
            }
            if disks.len() > DISK_COUNT_MAX {
                return Err(("spec.machine.disks".to_owned(), format!("more than {DISK_COUNT_MAX} disks")));
            }
            let mut disks = disks.clone();
            for (index, disk) in disks.iter_mut().enumerate() {
                let field = format!("spec.machine.disks[{index}]");
                if disk.layers.is_empty() || disk.layers.len() > DISK_COUNT_MAX {
                    return Err((format!("{field}.layers"), format!("a disk has 1 to {DISK_COUNT_MAX} layers")));
                }
                let mount_path = TreePath::parse(disk.mount_path.as_bytes())
                    .map_err(|error| (format!("{field}.mount_path"), error.to_string()))?;
                disk.mount_path = mount_path.to_string();
                for (layer_index, layer) in disk.layers.iter_mut().enumerate() {
                    layer.path = resolve(&layer.path, &format!("{field}.layers[{layer_index}].path"))?;
                }
            }
            Ok(Spec::Machine { guest, disks })
        }
    }
}

/// A spec that its record could not hold would be lost with the next start.
pub(super) fn check_length(spec: &Spec) -> Result<(), HostFault> {
    let text = serde_json::to_vec_pretty(spec).map_err(|error| HostFault::invalid("spec", error.to_string()))?;
    if text.len() as u64 > SPEC_BYTES_MAX {
        let what = format!("it takes {} bytes to keep, over the limit of {SPEC_BYTES_MAX}", text.len());
        return Err(HostFault::invalid("spec", what));
    }
    Ok(())
}

/// A partition that the disk does not have is a mistake of whoever registers it; that a disk cannot be read otherwise is
/// for its Seal to say.
pub(super) fn check_partitions(spec: &Spec) -> Result<(), HostFault> {
    let Spec::Machine { disks, .. } = spec else { return Ok(()) };
    for (index, disk) in disks.iter().enumerate() {
        let field = match &disk.partition {
            None => continue,
            Some(DiskPartition::Number(_)) => "partition_number",
            Some(DiskPartition::Guid(_)) => "partition_guid",
        };
        if let Err(OpenError::Unavailable { what }) = dormouse_disk::probe(&disk.to_reader(), &DiskLimits::default())
            && matches!(what.as_str(), "partition" | "partition_guid" | "no_partition_table")
        {
            let what = match what.as_str() {
                "no_partition_table" => "the disk has no partition table; leave the partition unset",
                "partition_guid" => "it is no GUID",
                _ => "the disk has no such partition, or more than one of that type",
            };
            return Err(HostFault::invalid(format!("spec.machine.disks[{index}].{field}"), what));
        }
    }
    Ok(())
}

/// What is wrong with a place, and what to do.
fn outside(what: &str, roots: &str) -> String {
    format!(
        "the {what} lies under none of the host's {roots}, once its links are followed; name one beneath them, or let the \
         host's operator add its parent to {roots} in the configuration"
    )
}
