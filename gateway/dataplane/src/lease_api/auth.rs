//! Who may call: holders of the admin key, or, while there is none, whoever can reach this machine's loopback.

use super::Origin;
use super::error::{Problem, Refusal};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::hint::black_box;
use std::net::SocketAddr;

/// What a caller has to show.
pub(super) enum AdminKey {
    Required(String),
    /// No key is configured, and only this machine can connect.
    LoopbackOnly,
    /// No key is configured, and others can connect: nobody is served.
    Closed,
}

impl AdminKey {
    pub(super) fn new(key: Option<&str>, local: SocketAddr) -> Result<Self, String> {
        match key {
            // Bytes that no header can carry would lock everybody out.
            Some(key) if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("admin_key is refused: it must be one or more visible ASCII characters".to_owned())
            }
            Some(key) => Ok(Self::Required(key.to_owned())),
            None if local.ip().to_canonical().is_loopback() => Ok(Self::LoopbackOnly),
            None => Ok(Self::Closed),
        }
    }

    pub(super) fn check(&self, headers: &HeaderMap, origin: Origin) -> Result<(), Refusal> {
        let key = match self {
            Self::LoopbackOnly => return Ok(()),
            Self::Closed if origin == Origin::LeaseSocket => return Ok(()),
            Self::Closed => {
                return Err(Refusal::new(
                    Problem::Forbidden,
                    "the lease API is closed: no admin_key is configured, and the gateway listens beyond loopback",
                ));
            }
            Self::Required(key) => key,
        };
        let Some(value) = headers.get(AUTHORIZATION) else {
            return Err(Refusal::new(
                Problem::Unauthenticated,
                "the admin key is missing: send Authorization: Bearer <admin key>",
            ));
        };
        match bearer(value.as_bytes()) {
            None => Err(Refusal::new(
                Problem::Unauthenticated,
                "the Authorization header is not of the form: Bearer <admin key>",
            )),
            Some(shown) if equal(shown, key.as_bytes()) => Ok(()),
            Some(_) => Err(Refusal::new(Problem::Forbidden, "this is not the admin key")),
        }
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that depends on the length of `shown` alone, not on where the two differ.
fn equal(shown: &[u8], key: &[u8]) -> bool {
    let mut difference = shown.len() ^ key.len();
    for (index, byte) in shown.iter().enumerate() {
        let other = key[index % key.len()];
        difference |= usize::from(black_box(byte ^ other));
    }
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn status(access: &AdminKey, value: Option<&'static str>) -> u16 {
        let headers = value
            .map(|value| (AUTHORIZATION, HeaderValue::from_static(value)))
            .into_iter()
            .collect();
        access
            .check(&headers, Origin::Listener)
            .map_or_else(|refusal| refusal.status().as_u16(), |()| 200)
    }

    /// The key opens; nothing is 401, another key 403, and every prefix, extension and neighbour is another key.
    #[test]
    fn keys() {
        let local = "127.0.0.1:80".parse().expect("an address");
        let access = AdminKey::new(Some("secret"), local).expect("a key");
        for (value, expected) in [
            (None, 401),
            (Some("Basic secret"), 401),
            (Some("secret"), 401),
            (Some("Bearer"), 401),
            (Some("Bearer "), 403),
            (Some("Bearer secre"), 403),
            (Some("Bearer secrets"), 403),
            (Some("Bearer secretsecret"), 403),
            (Some("Bearer Secret"), 403),
            (Some("bearer secret"), 200),
            (Some("Bearer  secret"), 200),
        ] {
            assert_eq!(status(&access, value), expected, "{value:?}");
        }
    }

    /// Without a key only what this machine alone can reach is open: a listener on loopback, and the lease socket.
    #[test]
    fn without_a_key() {
        for (local, expected) in [
            ("127.0.0.1:80", 200),
            ("[::1]:80", 200),
            ("[::ffff:127.0.0.1]:80", 200),
            ("0.0.0.0:80", 403),
            ("[::]:80", 403),
            ("10.0.0.1:80", 403),
        ] {
            let access = AdminKey::new(None, local.parse().expect("an address")).expect("no key");
            assert_eq!(status(&access, None), expected, "{local}");
            assert!(access.check(&HeaderMap::new(), Origin::LeaseSocket).is_ok(), "{local}");
        }
    }

    /// A key that no client could send is refused at the start.
    #[test]
    fn impossible_keys() {
        let local = "127.0.0.1:80".parse().expect("an address");
        for key in ["", "a b", "ä", "a\n"] {
            assert!(AdminKey::new(Some(key), local).is_err(), "{key:?}");
        }
    }
}
