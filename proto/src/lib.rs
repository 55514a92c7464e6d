//! The contract of Dormouse, generated from `proto/dormouse/**.proto`: the only thing that other languages see.
//!
//! Nothing here is written by hand but the names of reasons. The `.proto` comments are the user's manual.

/// The files of the workspaces that one host holds.
pub mod files {
    /// Version 1 of the package `dormouse.files`.
    pub mod v1 {
        tonic::include_proto!("dormouse.files.v1");
    }
}

/// What a control plane says to one host.
pub mod host {
    /// Version 1 of the package `dormouse.host`.
    pub mod v1 {
        tonic::include_proto!("dormouse.host.v1");
    }
}

/// What a host says to the agent inside one of its machines.
pub mod guest {
    /// Version 1 of the package `dormouse.guest`.
    pub mod v1 {
        tonic::include_proto!("dormouse.guest.v1");
    }
}

/// The compiled `FileDescriptorSet` of all three packages and what they import, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The domain of every `google.rpc.ErrorInfo` of this contract.
pub const ERROR_DOMAIN: &str = "dormouse.dev";

/// The request metadata key by which a caller says which generation of a workspace it knows.
pub const GENERATION_METADATA: &str = "dormouse-generation";

impl files::v1::ErrorReason {
    /// The name as `ErrorInfo.reason` carries it, such as `OFFLINE_UNAVAILABLE`.
    pub fn wire_name(self) -> &'static str {
        let name = self.as_str_name();
        name.strip_prefix("ERROR_REASON_").unwrap_or(name)
    }

    /// The reason that `ErrorInfo.reason` names, or nothing for a name of a later version.
    pub fn from_wire_name(name: &str) -> Option<Self> {
        Self::from_str_name(&format!("ERROR_REASON_{name}"))
    }
}

impl files::v1::Feature {
    /// The name as an error's metadata `feature` and a configuration carry it, such as `file_search`.
    pub fn wire_name(self) -> String {
        self.as_str_name().trim_start_matches("FEATURE_").to_ascii_lowercase()
    }
}
