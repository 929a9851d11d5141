//! A list that nearly always has one member, which then costs no allocation.

/// Some members, in the order in which they were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Few<T> {
    first: Option<T>,
    others: Vec<T>,
}

impl<T> Few<T> {
    pub(crate) const fn one(member: T) -> Self {
        Self {
            first: Some(member),
            others: Vec::new(),
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self {
            first: None,
            others: Vec::new(),
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut members = members.into_iter();
        Self {
            first: members.next(),
            others: members.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members come out in the order in which they went in, however many there are.
    #[test]
    fn members_keep_their_order() {
        for count in 0..4 {
            let few: Few<u32> = (0..count).collect();
            assert_eq!(few.is_empty(), count == 0);
            assert!(few.iter().copied().eq(0..count));
        }
        assert_eq!(Few::one(0), (0..1).collect());
    }
}
