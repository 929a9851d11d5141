//! What a manager alone does to the engines of a pool: the lease API refuses it there, with the way out.
//!
//! A manager has a registry and updates of its own. Behind its back a backend would be added that no update reaches,
//! and a version published that its engines do not run. Owners, senders and their leases are no affair of a manager.

use super::ApiPool;
use super::error::{Problem, Refusal};
use super::route::PoolCall;

pub(super) fn check(pool: &ApiPool, call: &PoolCall<'_>) -> Result<(), Refusal> {
    if !pool.shared.is_managed() {
        return Ok(());
    }
    let role = &pool.role;
    let way_out = match call {
        PoolCall::AddBackends => {
            format!("register an engine with POST /{role}/workers, or start some with trimtab scale")
        }
        PoolCall::RemoveBackend(_) => {
            format!("remove an engine with DELETE /{role}/workers/<id>, or stop some with trimtab scale")
        }
        PoolCall::BeginUpdate
        | PoolCall::Drain(_)
        | PoolCall::Resume(_)
        | PoolCall::Publish(_)
        | PoolCall::FailUpdate(_)
        | PoolCall::CancelUpdate(_) => format!(
            "update its weights with trimtab update or POST /{role}/update_weights/from_disk, and lend its memory with \
             POST /{role}/sleep"
        ),
        PoolCall::Fail | PoolCall::Close => format!("stop it with POST /{role}/pause"),
        PoolCall::Show
        | PoolCall::AttachOwner
        | PoolCall::Acknowledge(_)
        | PoolCall::AttachSender
        | PoolCall::Heartbeat(_)
        | PoolCall::DetachSender(_)
        | PoolCall::Acquire
        | PoolCall::Settle(_)
        | PoolCall::Batch
        | PoolCall::CloseSession(_)
        | PoolCall::Fence
        | PoolCall::Unfence => return Ok(()),
    };
    let message = format!("the engines of {role}/{} are run by a manager: {way_out}", pool.model);
    Err(Refusal::new(Problem::Managed, message))
}
