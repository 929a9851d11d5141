//! From a path under `/v1/router` to the call it stands for.
//!
//! Names are single path segments, percent-encoded where they contain a slash. A pool is `role/model`: two segments, or
//! one in which the slash is encoded.

/// The path prefix of the lease API.
const PREFIX: &str = "/v1/router/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolName {
    pub(super) role: String,
    pub(super) model: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Call {
    OpenApi,
    Pools,
    Pool { pool: PoolName, call: PoolCall },
}

/// A call on one pool, with the names in its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PoolCall {
    Show,
    AddBackends,
    RemoveBackend(String),
    AttachOwner,
    Acknowledge(String),
    AttachSender,
    Heartbeat(String),
    /// By `DELETE`, on the path of the sender.
    DetachSender(String),
    Acquire,
    Settle(String),
    Batch,
    CloseSession(String),
    Fence,
    Unfence,
    BeginUpdate,
    Drain(String),
    Resume(String),
    Publish(String),
    FailUpdate(String),
    CancelUpdate(String),
    Fail,
    Close,
}

impl Call {
    /// The one method of the call.
    pub(super) const fn method(&self) -> &'static str {
        match self {
            Self::OpenApi
            | Self::Pools
            | Self::Pool {
                call: PoolCall::Show, ..
            } => "GET",
            Self::Pool {
                call: PoolCall::RemoveBackend(_) | PoolCall::DetachSender(_),
                ..
            } => "DELETE",
            Self::Pool { .. } => "POST",
        }
    }

    /// The query parameters of the call.
    pub(super) const fn parameters(&self) -> &'static [&'static str] {
        match self {
            Self::Pools
            | Self::Pool {
                call: PoolCall::Show, ..
            } => &["since_gen", "wait_ms", "expect_incarnation"],
            Self::Pool {
                call: PoolCall::RemoveBackend(_),
                ..
            } => &["generation", "drain_ms", "expect_incarnation"],
            Self::Pool {
                call: PoolCall::DetachSender(_),
                ..
            } => &["incarnation", "expect_incarnation"],
            Self::OpenApi | Self::Pool { .. } => &[],
        }
    }
}

/// Whether the lease API serves `path`, given without its leading `/v1/`.
pub(crate) fn is_ours(path: &str) -> bool {
    path.strip_prefix("router")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The call that `path` stands for.
pub(super) fn parse(path: &str) -> Option<Call> {
    let segments: Vec<String> = path
        .strip_prefix(PREFIX)?
        .split('/')
        .map(decode)
        .collect::<Option<_>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["openapi.json"] => Some(Call::OpenApi),
        ["pools"] => Some(Call::Pools),
        ["pools", rest @ ..] => {
            let (pool, rest) = split_pool(rest)?;
            let call = parse_pool_call(rest)?;
            Some(Call::Pool { pool, call })
        }
        _ => None,
    }
}

fn split_pool<'a>(segments: &'a [&'a str]) -> Option<(PoolName, &'a [&'a str])> {
    let (role, model, rest) = match segments {
        // A role has no slash in its name, so one in the first segment is the one between role and model.
        [both, rest @ ..] if both.contains('/') => {
            let (role, model) = both.split_once('/')?;
            (role, model, rest)
        }
        [role, model, rest @ ..] => (*role, *model, rest),
        _ => return None,
    };
    let name = PoolName {
        role: role.to_owned(),
        model: model.to_owned(),
    };
    Some((name, rest))
}

fn parse_pool_call(segments: &[&str]) -> Option<PoolCall> {
    if segments.iter().any(|segment| segment.is_empty()) {
        return None;
    }
    let call = match segments {
        [] => PoolCall::Show,
        ["backends"] => PoolCall::AddBackends,
        ["backends", id] => PoolCall::RemoveBackend((*id).to_owned()),
        ["owners"] => PoolCall::AttachOwner,
        ["owners", owner, "ack"] => PoolCall::Acknowledge((*owner).to_owned()),
        ["senders"] => PoolCall::AttachSender,
        ["senders", sender, "heartbeat"] => PoolCall::Heartbeat((*sender).to_owned()),
        ["senders", sender] => PoolCall::DetachSender((*sender).to_owned()),
        ["leases"] => PoolCall::Acquire,
        ["leases:batch"] => PoolCall::Batch,
        ["leases", lease, "settle"] => PoolCall::Settle((*lease).to_owned()),
        ["sessions", key, "close"] => PoolCall::CloseSession((*key).to_owned()),
        ["fence"] => PoolCall::Fence,
        ["unfence"] => PoolCall::Unfence,
        ["updates"] => PoolCall::BeginUpdate,
        ["updates", id, "drain"] => PoolCall::Drain((*id).to_owned()),
        ["updates", id, "resume"] => PoolCall::Resume((*id).to_owned()),
        ["updates", id, "publish"] => PoolCall::Publish((*id).to_owned()),
        ["updates", id, "fail"] => PoolCall::FailUpdate((*id).to_owned()),
        ["updates", id, "cancel"] => PoolCall::CancelUpdate((*id).to_owned()),
        ["fail"] => PoolCall::Fail,
        ["close"] => PoolCall::Close,
        _ => return None,
    };
    Some(call)
}

/// Undoes percent-encoding; `None` when an escape is malformed or the result is not UTF-8.
pub(super) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(*high)? << 4 | digit(*low)?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool_call(path: &str) -> Option<(String, String, PoolCall)> {
        match parse(path)? {
            Call::Pool { pool, call } => Some((pool.role, pool.model, call)),
            _ => None,
        }
    }

    /// Names with slashes are encoded; the slash of a pool may be.
    #[test]
    fn names_are_decoded() {
        for (path, model, call) in [
            ("r/m", "m", PoolCall::Show),
            ("r%2Fm", "m", PoolCall::Show),
            ("r%2fQwen/fence", "Qwen", PoolCall::Fence),
            ("r/org%2Fname/leases", "org/name", PoolCall::Acquire),
            ("r%2Forg%2Fname/leases", "org/name", PoolCall::Acquire),
            (
                "r/m/senders/rollout%2F3/heartbeat",
                "m",
                PoolCall::Heartbeat("rollout/3".to_owned()),
            ),
            (
                "r/m/sessions/%C3%A4%20b/close",
                "m",
                PoolCall::CloseSession("ä b".to_owned()),
            ),
            (
                "r/m/backends/%5B::1%5D:80",
                "m",
                PoolCall::RemoveBackend("[::1]:80".to_owned()),
            ),
            ("r/m/leases:batch", "m", PoolCall::Batch),
        ] {
            let parsed = pool_call(&format!("/v1/router/pools/{path}"));
            assert_eq!(parsed, Some(("r".to_owned(), model.to_owned(), call)), "{path}");
        }
    }

    /// Anything else under the prefix is nothing.
    #[test]
    fn other_paths() {
        for path in [
            "/v1/router",
            "/v1/router/",
            "/v1/router/pools/",
            "/v1/router/pools/r",
            "/v1/router/pools/r/m/",
            "/v1/router/pools/r/m/leases/",
            "/v1/router/pools/r/m/senders//heartbeat",
            "/v1/router/pools/r/m/leases/1/settle/2",
            "/v1/router/pools/r/m/%zz",
            "/v1/router/pools/r/m%",
            "/v1/router/pools/r/m%ff",
            "/v1/router/pools/r/m/updates/u/begin",
            "/v1/routers/pools",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
        assert!(is_ours("router") && is_ours("router/x") && !is_ours("routers") && !is_ours("x"));
    }
}
