//! The chains that other programs expect a kubelet to maintain in the node's firewall (docs/behaviour/node-status.md): a
//! hint for programs that detect which kind of iptables the node uses, the rule that keeps other machines away from
//! services on the loopback addresses, and chains that show when another program has flushed the tables. Never runs a
//! program.

/// The address family, and with it the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The name of the program, the same on every node.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }
}

/// Position of a rule in its chain, if it has to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chain,
    Rule(Position, &'static [&'static str]),
}

/// A chain or a rule that must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    table: &'static str,
    chain: &'static str,
    kind: Kind,
}

/// Timeout in seconds for the lock of the tables, because other programs write to them, too.
const LOCK_TIMEOUT_SECONDS: &str = "5";

const HINT: &str = "KUBE-IPTABLES-HINT";
const FIREWALL: &str = "KUBE-FIREWALL";
const CANARY: &str = "KUBE-KUBELET-CANARY";

const TO_FIREWALL: &[&str] = &["-j", FIREWALL];
/// kube-proxy enables routing of the loopback addresses; other hosts must not reach them.
const BLOCK_REMOTE_LOOPBACK: &[&str] = &[
    "-m",
    "comment",
    "--comment",
    "block incoming localnet connections",
    "--dst",
    "127.0.0.0/8",
    "!",
    "--src",
    "127.0.0.0/8",
    "-m",
    "conntrack",
    "!",
    "--ctstate",
    "RELATED,ESTABLISHED,DNAT",
    "-j",
    "DROP",
];

const fn chain(table: &'static str, chain: &'static str) -> Piece {
    Piece { table, chain, kind: Kind::Chain }
}

const fn rule(chain: &'static str, place: Position, rule: &'static [&'static str]) -> Piece {
    Piece { table: "filter", chain, kind: Kind::Rule(place, rule) }
}

/// If one of these is missing, another program has flushed the tables.
pub const CANARIES: [Piece; 3] = [chain("mangle", CANARY), chain("nat", CANARY), chain("filter", CANARY)];

/// All chains and rules, each after those it refers to; the canaries last, so that their presence proves that the others
/// were created.
#[must_use]
pub fn pieces(family: Family) -> Vec<Piece> {
    let mut pieces = vec![chain("mangle", HINT)];
    match family {
        Family::V4 => pieces.extend([
            chain("filter", FIREWALL),
            rule("OUTPUT", Position::First, TO_FIREWALL),
            rule("INPUT", Position::First, TO_FIREWALL),
            rule(FIREWALL, Position::Last, BLOCK_REMOTE_LOOPBACK),
        ]),
        // The kernel must not route packets to that loopback address.
        Family::V6 => {}
    }
    pieces.extend(CANARIES);
    pieces
}

impl Piece {
    /// Arguments of the check: the program succeeds if the piece exists.
    #[must_use]
    pub fn check_arguments(&self) -> Vec<String> {
        match self.kind {
            Kind::Chain => self.arguments("-S", &[]),
            Kind::Rule(_, rule) => self.arguments("-C", rule),
        }
    }

    /// Arguments that create the piece.
    #[must_use]
    pub fn create_arguments(&self) -> Vec<String> {
        match self.kind {
            Kind::Chain => self.arguments("-N", &[]),
            Kind::Rule(Position::First, rule) => self.arguments("-I", rule),
            Kind::Rule(Position::Last, rule) => self.arguments("-A", rule),
        }
    }

    fn arguments(&self, act: &str, rule: &[&str]) -> Vec<String> {
        let begin = ["-w", LOCK_TIMEOUT_SECONDS, "-t", self.table, act, self.chain];
        begin.iter().chain(rule).map(|word| (*word).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(family: Family, of: impl Fn(&Piece) -> Vec<String>) -> Vec<String> {
        pieces(family).iter().map(|piece| of(piece).join(" ")).collect()
    }

    const TO_LOOPBACK: &str = "-m comment --comment block incoming localnet connections --dst 127.0.0.0/8 \
         ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";

    #[test]
    fn each_piece_is_made_after_what_it_refers_to_and_the_canaries_last() {
        let canaries =
            ["mangle", "nat", "filter"].map(|table| format!("-w 5 -t {table} -N KUBE-KUBELET-CANARY"));
        let mut expected = vec![
            "-w 5 -t mangle -N KUBE-IPTABLES-HINT".to_owned(),
            "-w 5 -t filter -N KUBE-FIREWALL".to_owned(),
            "-w 5 -t filter -I OUTPUT -j KUBE-FIREWALL".to_owned(),
            "-w 5 -t filter -I INPUT -j KUBE-FIREWALL".to_owned(),
            format!("-w 5 -t filter -A KUBE-FIREWALL {TO_LOOPBACK}"),
        ];
        expected.extend(canaries.clone());
        assert_eq!(shown(Family::V4, Piece::create_arguments), expected);
        expected.drain(1..5);
        assert_eq!(shown(Family::V6, Piece::create_arguments), expected);
    }

    #[test]
    fn iptables_check_has_the_arguments_of_the_creation() {
        for family in Family::ALL {
            for (check, create) in
                shown(family, Piece::check_arguments).iter().zip(shown(family, Piece::create_arguments))
            {
                let expected = check.replace(" -S ", " -N ").replace(" -C ", " -I ");
                assert!(expected == create || expected == create.replace(" -A ", " -I "), "{check}");
                assert!(check.contains(" -S ") || check.contains(" -C "), "{check}");
            }
        }
    }
}
