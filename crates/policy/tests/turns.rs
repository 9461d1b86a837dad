//! Whose turn it is, and who begins: nobody is forgotten, nobody gets more than a share, nothing waits for ever.

extern crate millpond_policy as policy;

use policy::{Pool, Turns, Verdict};
use proptest::prelude::*;
use std::collections::HashMap;

fn all(turns: &mut Turns<u8, u8, u32>) -> Vec<(u8, u8, u32)> {
    std::iter::from_fn(|| turns.take(|_, _, _| Verdict::Go)).collect()
}

#[test]
fn a_small_one_does_not_wait_for_all_that_are_large() {
    let mut turns = Turns::default();
    for item in 0..32 {
        turns.put((&0, 1), &1, 8 << 20, item);
    }
    assert_eq!(turns.take(|_, _, _| Verdict::Go), Some((0, 1, 0)));
    turns.put((&0, 1), &2, 1000, 100);
    let next: Vec<_> = (0..2).filter_map(|_| turns.take(|_, _, _| Verdict::Go)).collect();
    assert!(next.contains(&(0, 2, 100)), "{next:?}");
}

#[test]
fn tenants_have_turns_by_their_weights_whatever_they_consist_of() {
    let mut turns = Turns::default();
    for item in 0..300 {
        // One tenant has many flows, the other one, and three times the weight.
        turns.put((&0, 1), &((item % 30) as u8), 10, item);
        turns.put((&1, 3), &200, 10, 1000 + item);
    }
    let first: Vec<_> = (0..100)
        .filter_map(|_| turns.take(|_, _, _| Verdict::Go))
        .collect();
    let heavy = first.iter().filter(|(tenant, ..)| *tenant == 1).count();
    assert!((74..=76).contains(&heavy), "{heavy}");
}

#[test]
fn who_may_not_go_lets_others_pass_and_saves_nothing_by_it() {
    let mut turns = Turns::default();
    for item in 0..10 {
        turns.put((&0, 1), &1, 10, item);
        turns.put((&0, 1), &2, 10, 100 + item);
    }
    let only_two = |_: &u8, flow: &u8, _: &u32| match flow {
        1 => Verdict::Pass,
        _ => Verdict::Go,
    };
    for item in 100..106 {
        assert_eq!(turns.take(only_two), Some((0, 2, item)));
    }
    assert_eq!(turns.take(|_, _, _| Verdict::Stop), None);
    let next: Vec<_> = all(&mut turns).iter().map(|(_, flow, _)| *flow).collect();
    let ones = next[..4].iter().filter(|flow| **flow == 1).count();
    assert!((2..=3).contains(&ones), "{next:?}");
    assert_eq!(next.len(), 14);
    assert!(turns.is_empty());
}

proptest! {
    #[test]
    fn all_that_was_put_is_taken_once_in_its_flows_order_or_forgotten(
        items in prop::collection::vec((0_u8..3, 0_u8..4, 0_u64..1000, any::<bool>(), any::<bool>()), 1..200),
    ) {
        let mut turns = Turns::default();
        let (mut taken, mut expected) = (Vec::new(), Vec::new());
        for (item, (tenant, flow, cost, takes, forgets)) in items.into_iter().enumerate() {
            let item = item as u32;
            turns.put((&tenant, 1 + u32::from(tenant)), &flow, cost, item);
            if forgets {
                prop_assert!(turns.forget(&tenant, &flow, &item));
                prop_assert!(!turns.forget(&tenant, &flow, &item));
            } else {
                expected.push((tenant, flow, item));
            }
            if takes {
                taken.extend(turns.take(|_, _, _| Verdict::Go));
            }
        }
        taken.extend(all(&mut turns));
        prop_assert_eq!(turns.len(), 0);
        for tenant in 0..3 {
            for flow in 0..4 {
                let of = |list: &[(u8, u8, u32)]| list.iter().filter(|(its, one, _)| (*its, *one) == (tenant, flow)).copied().collect::<Vec<_>>();
                prop_assert_eq!(of(&taken), of(&expected));
            }
        }
    }

    /// Of two flows that wait all the time, and of two tenants, neither is ahead by more than the largest item of each.
    #[test]
    fn who_always_waits_gets_as_much_as_others(
        costs in prop::collection::vec((1_u64..1000, 1_u64..1000, 1_u64..1000), 20..60),
        weight in 1_u32..5,
    ) {
        let mut turns = Turns::default();
        for (item, (one, two, other)) in costs.iter().enumerate() {
            let item = item as u32;
            turns.put((&0, 1), &1, *one, item);
            turns.put((&0, 1), &2, *two, item);
            turns.put((&1, weight), &3, *other, item);
        }
        let mut given: HashMap<u8, u64> = HashMap::new();
        let mut left = HashMap::from([(1, costs.len()), (2, costs.len()), (3, costs.len())]);
        while left.values().all(|left| *left > 0) {
            let (_, flow, item) = turns.take(|_, _, _| Verdict::Go).unwrap();
            let (one, two, other) = costs[item as usize];
            *given.entry(flow).or_default() += [one, two, other][usize::from(flow) - 1];
            *left.get_mut(&flow).unwrap() -= 1;
            let of = |flow| given.get(&flow).copied().unwrap_or(0);
            prop_assert!(of(1).abs_diff(of(2)) <= 2000, "{given:?}");
            let weighted = of(3) / u64::from(weight);
            prop_assert!((of(1) + of(2)).abs_diff(weighted) <= 2002, "{given:?}, weight {weight}");
        }
    }

    /// Whoever comes last waits for one item of each other flow, and what was before it in its own.
    #[test]
    fn nobody_waits_for_ever(others in 1_u8..20, most in 1_u64..100_000, before in 0_u32..50) {
        let mut turns = Turns::default();
        let mut next = 1000;
        let mut fill = |turns: &mut Turns<u8, u8, u32>, flow: u8| {
            next += 1;
            turns.put((&0, 1), &flow, most, next);
        };
        for flow in 0..others {
            fill(&mut turns, flow);
        }
        for _ in 0..before {
            let (_, flow, _) = turns.take(|_, _, _| Verdict::Go).unwrap();
            fill(&mut turns, flow);
        }
        turns.put((&0, 1), &100, most, 0);
        let mut waited = 0;
        loop {
            let (_, flow, _) = turns.take(|_, _, _| Verdict::Go).unwrap();
            if flow == 100 {
                break;
            }
            waited += 1;
            prop_assert!(waited <= u32::from(others), "it waited for {waited}");
            fill(&mut turns, flow);
        }
    }

    /// Whatever is asked for and however it ends, the bounds are kept by all but those that are alone, and all begin in the end.
    #[test]
    fn a_pool_keeps_its_bounds_and_lets_everybody_begin(
        places in 1_usize..6,
        all in 1_u64..100,
        share in 1_u64..100,
        asked in prop::collection::vec((0_u8..2, 0_u8..4, 0_u64..120), 1..80),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 200),
    ) {
        let mut pool = Pool::new(places, all, share);
        let mut waiting = HashMap::new();
        let mut running: Vec<(u8, u64)> = Vec::new();
        let (mut asked, mut ends) = (asked.into_iter(), ends.into_iter().cycle());
        loop {
            let Some((tenant, flow, bytes)) = asked.next() else {
                if running.is_empty() {
                    break;
                }
                let (flow, bytes) = running.swap_remove(ends.next().unwrap().index(running.len()));
                pool.leave();
                pool.give_back(&flow, bytes);
                while let Some(ticket) = pool.admit() {
                    running.push(waiting.remove(&ticket).unwrap());
                }
                continue;
            };
            let ticket = pool.ask((&tenant, 1), &flow, bytes);
            waiting.insert(ticket, (flow, bytes));
            while let Some(ticket) = pool.admit() {
                running.push(waiting.remove(&ticket).unwrap());
            }
            prop_assert!(running.len() <= places);
            let held: u64 = running.iter().map(|(_, bytes)| bytes).sum();
            prop_assert_eq!(held, pool.held());
            let holders = |of: Option<u8>| running.iter().filter(|(flow, bytes)| *bytes > 0 && of.is_none_or(|of| of == *flow)).count();
            prop_assert!(held <= all || holders(None) <= 1, "{running:?} of {all}");
            for flow in 0..4 {
                let its: u64 = running.iter().filter(|(its, _)| *its == flow).map(|(_, bytes)| bytes).sum();
                prop_assert!(its <= share || holders(Some(flow)) <= 1, "{running:?} of {share}");
            }
        }
        prop_assert!(waiting.is_empty(), "they wait for ever: {waiting:?}");
        prop_assert_eq!((pool.held(), pool.waiting()), (0, 0));
    }
}
