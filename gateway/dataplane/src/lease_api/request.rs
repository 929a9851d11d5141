//! The bodies of the calls. Unknown members and wrong types are refused by name.

mod leases;

pub(super) use leases::{Acquire, Batch, Operation, Settle};
use router_core::interval::Interval;
use serde::Deserialize;

/// What every body can say; its texts may be parts of the input.
pub(super) trait Body<'a>: Deserialize<'a> {
    /// The start of the router that the call is meant for.
    fn expect_incarnation(&self) -> Option<&str>;
}

/// Declares bodies: strict, and each with `expect_incarnation`.
macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $($(#[$attribute])* pub(super) $field: $type,)*
            expect_incarnation: Option<String>,
        }

        impl Body<'_> for $name {
            fn expect_incarnation(&self) -> Option<&str> {
                self.expect_incarnation.as_deref()
            }
        }
    )*};
}

bodies! {
    AddBackends {
        backends: Vec<NewBackend>,
        #[serde(default)]
        replace: bool,
    }

    AttachOwner {
        owner: String,
        version: Option<u64>,
    }

    Acknowledge {
        version: u64,
    }

    AttachSender {
        sender: String,
        owner: String,
        incarnation: String,
        #[serde(default)]
        adopt: Vec<Held>,
        #[serde(default)]
        pins: Vec<Pin>,
    }

    Heartbeat {
        incarnation: String,
        #[serde(default)]
        settled: Vec<Interval>,
    }

    CloseSession {
        /// Whose session; none for requests that name no sender.
        sender: Option<String>,
    }

    /// Of `fence` and `unfence`.
    Fence {
        owner: String,
        reason: String,
        op_id: Option<String>,
    }

    BeginUpdate {
        update_id: String,
        to_version: Option<u64>,
        #[serde(default)]
        kind: Kind,
    }

    Drain {
        timeout_ms: Option<u64>,
        wait_ms: Option<u64>,
    }

    Publish {
        version: u64,
        epoch: Option<u64>,
    }

    /// A call without an argument.
    Nothing {}

    /// Of `fail`.
    Reason {
        reason: String,
    }

    ClosePool {
        reason: Option<String>,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewBackend {
    pub(super) id: Option<String>,
    pub(super) address: String,
    pub(super) capacity: f64,
    pub(super) weight_version: Option<u64>,
}

/// A lease of an earlier start of the router.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Held {
    pub(super) seq: u64,
    pub(super) lease_id: String,
    pub(super) backend: String,
    pub(super) session: Option<String>,
    pub(super) weight_version: Option<u64>,
}

/// A session and where an earlier start of the router had pinned it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pin {
    pub(super) session: String,
    pub(super) backend: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    #[default]
    Weights,
    Offload,
    Pause,
}
