//! Senders that come, speak and go, and their sessions.

use super::{OWNERS, SENDERS, Trial};
use crate::model::{Record, Sender};
use proptest::prelude::*;
use router_core::sender::Attach;
use std::collections::{BTreeMap, BTreeSet};

impl Trial {
    pub(super) fn attach(&mut self, sender: u8, incarnation: u8) -> Result<(), TestCaseError> {
        let (name, owner) = SENDERS[usize::from(sender)];
        let now = self.now();
        let text = incarnation.to_string();
        let answer = self.pool.attach_sender(&Attach::new(name, &text, OWNERS[owner]), now);
        if let Some(over) = self.model.over() {
            self.agree(answer, Some(over))?;
            return Ok(());
        }
        let known = self.model.senders.get(&sender).map(|sender| sender.incarnation);
        if known.is_some_and(|known| known != incarnation) {
            self.model.lose_sender(sender);
            if let Some(over) = self.model.over() {
                self.agree(answer, Some(over))?;
                return Ok(());
            }
        }
        let attached = self.agree(answer, None)?.expect("attached");
        prop_assert_eq!(attached.already, known == Some(incarnation));
        let heard = self.model.now;
        if attached.already {
            self.model.senders.get_mut(&sender).expect("attached").heard = heard;
            return Ok(());
        }
        let namespace = self.model.number();
        self.model.senders.insert(
            sender,
            Sender {
                incarnation,
                namespace,
                settled: BTreeSet::new(),
                records: BTreeMap::new(),
                heard,
            },
        );
        Ok(())
    }

    pub(super) fn detach(&mut self, sender: u8) -> Result<(), TestCaseError> {
        let now = self.now();
        let (name, _) = SENDERS[usize::from(sender)];
        let answer = self.pool.detach_sender(name, "0", now);
        let known = self.model.senders.get(&sender).filter(|sender| sender.incarnation == 0);
        let holds = known.map(|known| {
            let mut requests = self.model.leases.values().filter_map(|lease| lease.request);
            requests.any(|(namespace, _)| namespace == known.namespace)
        });
        let expected = match holds {
            None => Some("unknown_sender"),
            Some(true) => Some("invalid_transition"),
            Some(false) => None,
        };
        if self.agree(answer, expected)?.is_some() {
            self.model.drop_sender(sender);
        }
        Ok(())
    }

    pub(super) fn heartbeat(&mut self, sender: u8, from: u64, count: u64) -> Result<(), TestCaseError> {
        let base = self.base[usize::from(sender)];
        let first = base + from % 8;
        let interval = (first, first + count);
        let now = self.now();
        let (name, _) = SENDERS[usize::from(sender)];
        let answer = self.pool.heartbeat(name, "0", &[interval], now);
        let known = self
            .model
            .senders
            .get_mut(&sender)
            .filter(|sender| sender.incarnation == 0);
        let Some(known) = known else {
            self.agree(answer, Some("unknown_sender"))?;
            return Ok(());
        };
        known.heard = self.model.now;
        let mut refused = Vec::new();
        for seq in first..=first + count {
            known.settled.insert(seq);
            match known.records.get(&seq) {
                Some((_, Record::Parked(ticket))) => refused.push(*ticket),
                Some((_, Record::Leased(number))) if !self.model.leases.contains_key(number) => {
                    self.model.tombstones.remove(number);
                    known.records.remove(&seq);
                }
                _ => {}
            }
        }
        let expected: Vec<u64> = known.settled.iter().copied().collect();
        for ticket in refused {
            self.model.answer(ticket, Err("stale_request"));
        }
        let status = self.agree(answer, None)?.expect("known");
        let numbers = status.settled.iter().flat_map(|(first, last)| *first..=*last);
        prop_assert_eq!(numbers.collect::<Vec<u64>>(), expected);
        if from == 0 {
            self.base[usize::from(sender)] = base + count + 1;
        }
        Ok(())
    }

    pub(super) fn close_session(&mut self, sender: Option<u8>, session: u8) {
        let (now, key) = (self.now(), session.to_string());
        let namespace = match sender {
            None => Some(0),
            Some(sender) => self.model.senders.get(&sender).map(|sender| sender.namespace),
        };
        let known = namespace.and_then(|namespace| self.model.sessions.remove(&(namespace, session)));
        let closed = match sender {
            None => self.pool.close_session(&key, now).known,
            Some(sender) => {
                let (name, _) = SENDERS[usize::from(sender)];
                let closed = self.pool.close_sender_session(name, &key, now);
                closed.is_ok_and(|closed| closed.known)
            }
        };
        assert_eq!(closed, known.is_some());
    }
}
