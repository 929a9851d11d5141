use super::{LeaseId, Mark, Outcome};
use crate::error::Error;
use crate::slab::Handle;
use proptest::prelude::*;

/// Names read back as what they name, and nothing else does.
#[test]
fn outcomes_have_names() {
    for (position, outcome) in Outcome::ALL.into_iter().enumerate() {
        assert_eq!(Outcome::parse(outcome.as_str()), Some(outcome));
        assert_eq!(outcome.index(), position);
    }
    assert_eq!(Outcome::parse("Completed"), None);
    assert_eq!(Outcome::parse(""), None);
}

/// Text that no lease was ever written as is an unknown lease, not a crash.
#[test]
fn other_texts_name_no_lease() {
    for text in [
        "",
        "1",
        "0x00000000000001",
        "+000000000000001",
        "00000000000000010",
        "000000000000000g",
        "0000000000000000",
        "é00000000000000",
    ] {
        assert_eq!(text.parse::<LeaseId>(), Err(Error::UnknownLease), "{text}");
    }
}

proptest! {
    /// An id is 16 hexadecimal digits and reads back.
    #[test]
    fn ids_read_back(seed in any::<u64>(), index in 0..1_u32 << 31, generation in 1_u32..) {
        let (mark, handle) = (Mark::new(seed), Handle { index, generation });
        let id = mark.id(handle);
        let text = id.to_string();
        prop_assert_eq!(text.len(), 16);
        prop_assert_eq!(text.parse::<LeaseId>(), Ok(id));
        prop_assert_eq!(mark.handle(id), handle);
    }
}
