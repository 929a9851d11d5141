//! Requests that come round: of a gateway that is its own engine, or of two that are each other's.
//!
//! A gateway adds itself to the `Via` of all it asks engines for (RFC 9110, section 7.6.3), under a name that no other
//! one has. What bears its name was here before, and would go round until descriptors run out, so it is refused. A
//! gateway in front of another one is no loop: each name is there once.

use crate::error::{Code, Failure};
use http::header::VIA;
use http::{HeaderMap, HeaderValue};
use memchr::memmem;
use std::hash::{BuildHasher, RandomState};

/// How this gateway names itself.
pub(crate) struct Via {
    name: String,
    /// Made once, as it goes into every request to an engine.
    entry: HeaderValue,
}

impl Via {
    pub(crate) fn new() -> Self {
        // The standard library seeds each `RandomState` from the system's random numbers.
        let name = format!("trimtab-{:016x}", RandomState::new().hash_one("via"));
        let entry = HeaderValue::try_from(format!("1.1 {name}")).expect("letters, digits, a dot and a dash");
        Self { name, entry }
    }

    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        headers.append(VIA, self.entry.clone());
    }

    /// Refuses a request that was here before.
    #[inline]
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Failure> {
        if headers.contains_key(VIA) {
            self.look_for_us(headers)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn look_for_us(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let hops: Vec<_> = headers.get_all(VIA).iter().map(HeaderValue::as_bytes).collect();
        if !hops.iter().any(|hop| memmem::find(hop, self.name.as_bytes()).is_some()) {
            return Ok(());
        }
        let message = format!(
            "the request came back to the gateway that had passed it on ({}): this gateway is one of its own engines, or \
             it is an engine of a gateway that is one of them (detail.via names them); take that address out of the \
             engines",
            self.name
        );
        let failure = Failure::new(Code::LoopDetected, message).closing();
        Err(failure.with_text("via", &String::from_utf8_lossy(&hops.join(&b", "[..]))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway knows itself wherever it stands, and takes nobody else for itself.
    #[test]
    fn a_gateway_knows_itself() {
        let (us, other) = (Via::new(), Via::new());
        let mut headers = HeaderMap::new();
        assert!(us.check(&headers).is_ok());
        headers.append(VIA, HeaderValue::from_static("1.0 fred, 1.1 trimtab-"));
        other.add_to(&mut headers);
        assert!(us.check(&headers).is_ok());
        us.add_to(&mut headers);
        let failure = us.check(&headers).expect_err("a loop");
        assert_eq!(failure.code(), Code::LoopDetected);
        assert!(failure.closes() && failure.message().contains(&us.name));
        let folded: Vec<_> = headers
            .get_all(VIA)
            .iter()
            .map(|hop| hop.to_str().expect("text"))
            .collect();
        let folded = HeaderValue::from_str(&folded.join(",")).expect("visible");
        headers.insert(VIA, folded);
        assert!(us.check(&headers).is_err() && other.check(&headers).is_err());
    }
}
