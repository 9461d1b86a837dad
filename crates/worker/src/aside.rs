//! Sockets whose requests are read later: their tenant has had more than its share, and others wait for theirs.

use crate::Readiness;
use contract::Party;
use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    time::Instant,
};

/// What was set aside of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) readiness: Readiness,
    /// Since when it may have lain unread.
    pub(crate) since: Instant,
}

/// See the module's introduction. A tenant's sockets come out in the order in which they went in.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    sockets: HashMap<u64, Waiting>,
    tenants: Vec<(Party, VecDeque<u64>)>,
}

impl Aside {
    pub(crate) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whose sockets these are: a snapshot.
    pub(crate) fn tenants(&self) -> Vec<Party> {
        self.tenants.iter().map(|(tenant, _)| *tenant).collect()
    }

    /// Sets a socket aside, or notes what else it has become ready for. Says whether it is new here.
    pub(crate) fn put(&mut self, tenant: Party, token: u64, waiting: Waiting) -> bool {
        match self.sockets.entry(token) {
            Entry::Occupied(mut known) => {
                known.get_mut().readiness |= waiting.readiness;
                false
            }
            Entry::Vacant(place) => {
                place.insert(waiting);
                match self.tenants.iter_mut().find(|(its, _)| its.index == tenant.index) {
                    Some((_, tokens)) => tokens.push_back(token),
                    None => self.tenants.push((tenant, VecDeque::from([token]))),
                }
                true
            }
        }
    }

    /// The socket of this tenant that has waited longest.
    pub(crate) fn take(&mut self, tenant: Party) -> Option<(u64, Waiting)> {
        let place = self
            .tenants
            .iter()
            .position(|(its, _)| its.index == tenant.index)?;
        let tokens = &mut self.tenants[place].1;
        let token = tokens.pop_front()?;
        if tokens.is_empty() {
            self.tenants.swap_remove(place);
        }
        let waiting = self.sockets.remove(&token)?;
        Some((token, waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const READABLE: Readiness = Readiness {
        readable: true,
        ended: false,
        writable: false,
        closed: false,
    };

    fn party(index: u32) -> Party {
        Party { index, weight: 1 }
    }

    fn waiting(readiness: Readiness, since: Instant) -> Waiting {
        Waiting { readiness, since }
    }

    #[test]
    fn each_tenants_sockets_come_out_in_order_and_once() {
        let (mut aside, now) = (Aside::default(), Instant::now());
        for (tenant, token) in [(1, 10), (2, 20), (1, 11), (1, 12), (2, 21)] {
            assert!(aside.put(party(tenant), token, waiting(READABLE, now)));
        }
        assert_eq!((aside.len(), aside.tenants()), (5, vec![party(1), party(2)]));
        let take = |aside: &mut Aside, tenant| aside.take(party(tenant)).map(|(token, _)| token);
        assert_eq!(take(&mut aside, 1), Some(10));
        assert!(aside.put(party(1), 10, waiting(READABLE, now)), "it is back");
        assert_eq!(
            [11, 12, 10].map(|_| take(&mut aside, 1)),
            [Some(11), Some(12), Some(10)]
        );
        assert_eq!(take(&mut aside, 1), None);
        assert_eq!(aside.tenants(), [party(2)]);
        assert_eq!(
            [take(&mut aside, 2), take(&mut aside, 2), take(&mut aside, 2)],
            [Some(20), Some(21), None]
        );
        assert!(aside.is_empty() && aside.tenants().is_empty());
    }

    #[test]
    fn what_a_socket_becomes_ready_for_adds_up_from_the_first_on() {
        let (mut aside, now) = (Aside::default(), Instant::now());
        let ended = Readiness {
            ended: true,
            ..READABLE
        };
        assert!(aside.put(party(0), 7, waiting(READABLE, now)));
        assert!(!aside.put(party(0), 7, waiting(ended, now + Duration::from_secs(1))));
        let (token, what) = aside.take(party(0)).expect("it was put");
        assert_eq!((token, what.readiness, what.since), (7, ended, now));
        assert!(aside.take(party(0)).is_none(), "it was put once");
    }
}
