//! `trimtab._core`: the routing core and the data plane, as Python sees them.
//!
//! A thin layer: conversions and exceptions. The public documentation lives in `trimtab/_core.pyi`.

mod address_rules;
mod clock;
mod dataplane_py;
mod errors;
mod histogram;
mod lease;
mod parked;
mod poison;
mod pool;
mod routing;
mod stats;
mod status;

/// For the data plane, whose every request allocates a few dozen small things: a tenth fewer instructions than with the
/// system's allocator. Without its wish for huge pages (`no_thp`): the kernel clears each of them, 2 MiB, in the middle of
/// somebody's request, which was most of the time of a gateway full of huge prompts.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The extension module.
#[pyo3::pymodule]
mod _core {
    #[pymodule_export]
    use crate::address_rules::AddressRules;
    #[pymodule_export]
    use crate::clock::VirtualClock;
    #[pymodule_export]
    use crate::dataplane_py::{DataPlane, Role};
    #[pymodule_export]
    use crate::histogram::Histogram;
    #[pymodule_export]
    use crate::lease::{Backend, Lease};
    #[pymodule_export]
    use crate::parked::ParkedAcquire;
    #[pymodule_export]
    use crate::poison::{EngineDeath, PoisonEntry};
    #[pymodule_export]
    use crate::pool::{Pool, normalize_address};
    #[pymodule_export]
    use crate::routing::{Route, RoutingTable};
    #[pymodule_export]
    use crate::stats::{BackendStatistics, PoolStatistics};
    #[pymodule_export]
    use crate::status::{Attached, OwnerStatus, SenderStatus, UpdateStatus};

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "the name Python gives this attribute")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
