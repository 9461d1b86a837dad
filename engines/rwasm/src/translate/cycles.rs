//! Which functions may call themselves, by way of others.

use native::Module;
use wasmparser::Operator;

/// The components of the graph of direct calls. Those by table or of imported functions are in none.
pub(super) struct Cycles(Vec<u32>);

impl Cycles {
    pub(super) fn new(module: &Module<'_>) -> wasmparser::Result<Self> {
        let mut calls = vec![Vec::new(); module.functions.len()];
        for (caller, body) in (module.imported_functions as usize..).zip(&module.bodies) {
            for operator in body.get_operators_reader()? {
                if let Operator::Call { function_index } = operator? {
                    calls[caller].push(function_index as usize);
                }
            }
        }
        Ok(Self(components(&calls)))
    }

    /// Whether a call leads back to its caller.
    pub(super) fn contains(&self, caller: u32, callee: u32) -> bool {
        self.0[caller as usize] == self.0[callee as usize]
    }
}

/// Of each node, the component that it is in (Tarjan's algorithm, without recursion).
fn components(edges: &[Vec<usize>]) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let mut number = vec![NONE; edges.len()];
    let mut lowest = number.clone();
    let mut component = number.clone();
    let (mut count, mut open) = (0, Vec::new());
    for root in 0..edges.len() {
        if number[root] != NONE {
            continue;
        }
        // Nodes on the way, with the edge that is next.
        let mut way = vec![(root, 0)];
        while let Some((node, next)) = way.pop() {
            if next == 0 {
                number[node] = count;
                lowest[node] = count;
                count += 1;
                open.push(node);
            } else {
                let child = edges[node][next - 1];
                if component[child] == NONE {
                    lowest[node] = lowest[node].min(lowest[child]);
                }
            }
            if let Some(child) = edges[node].get(next) {
                way.push((node, next + 1));
                if number[*child] == NONE {
                    way.push((*child, 0));
                }
                continue;
            }
            if lowest[node] == number[node] {
                while let Some(member) = open.pop() {
                    component[member] = number[node];
                    if member == node {
                        break;
                    }
                }
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_calls_itself_by_way_of_others_is_found() {
        // 0 calls itself; 1, 2 and 3 each other; 4 calls them, and 5 nobody.
        let edges = [vec![0], vec![2], vec![3, 5], vec![1], vec![1, 5], vec![]];
        let found = components(&edges);
        assert!(found[1] == found[2] && found[2] == found[3]);
        let mut others = [found[0], found[1], found[4], found[5]];
        others.sort_unstable();
        assert!(others.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
