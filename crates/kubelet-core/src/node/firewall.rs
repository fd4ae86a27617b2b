//! The chains that others expect a kubelet to keep in the node's firewall (docs/behaviour/node-status.md): a mark for programs
//! that want to know which kind of firewall the node uses, the rule that keeps other machines away from services on the
//! loopback addresses, and chains that show when somebody has emptied the tables. Never runs a program.

/// Which program speaks of which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// As it is called on every node that has it.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }
}

/// Where a rule stands among those of its chain, if it is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chain,
    Rule(Place, &'static [&'static str]),
}

/// One thing that must be there: a chain, or a rule in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    table: &'static str,
    chain: &'static str,
    kind: Kind,
}

/// Others write to the same tables: so many seconds we wait for our turn.
const LOCK_TIMEOUT_SECONDS: &str = "5";

const HINT: &str = "KUBE-IPTABLES-HINT";
const FIREWALL: &str = "KUBE-FIREWALL";
const CANARY: &str = "KUBE-KUBELET-CANARY";

const TO_FIREWALL: &[&str] = &["-j", FIREWALL];
/// kube-proxy lets the loopback addresses be routed; nobody else may reach them from outside.
const NO_STRANGERS_ON_LOOPBACK: &[&str] = &[
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

const fn rule(chain: &'static str, place: Place, rule: &'static [&'static str]) -> Piece {
    Piece { table: "filter", chain, kind: Kind::Rule(place, rule) }
}

/// Where one of these is missing, somebody has emptied the tables.
pub const CANARIES: [Piece; 3] = [chain("mangle", CANARY), chain("nat", CANARY), chain("filter", CANARY)];

/// What must be there, each after what it refers to; the canaries last, so that they stand for all of it.
#[must_use]
pub fn pieces(family: Family) -> Vec<Piece> {
    let mut pieces = vec![chain("mangle", HINT)];
    match family {
        Family::V4 => pieces.extend([
            chain("filter", FIREWALL),
            rule("OUTPUT", Place::First, TO_FIREWALL),
            rule("INPUT", Place::First, TO_FIREWALL),
            rule(FIREWALL, Place::Last, NO_STRANGERS_ON_LOOPBACK),
        ]),
        // The kernel routes no packet to that loopback address.
        Family::V6 => {}
    }
    pieces.extend(CANARIES);
    pieces
}

impl Piece {
    /// What asks for it: the program succeeds if it is there.
    #[must_use]
    pub fn question(&self) -> Vec<String> {
        match self.kind {
            Kind::Chain => self.words("-S", &[]),
            Kind::Rule(_, rule) => self.words("-C", rule),
        }
    }

    /// What makes it where it is not there.
    #[must_use]
    pub fn remedy(&self) -> Vec<String> {
        match self.kind {
            Kind::Chain => self.words("-N", &[]),
            Kind::Rule(Place::First, rule) => self.words("-I", rule),
            Kind::Rule(Place::Last, rule) => self.words("-A", rule),
        }
    }

    fn words(&self, act: &str, rule: &[&str]) -> Vec<String> {
        let begin = ["-w", LOCK_TIMEOUT_SECONDS, "-t", self.table, act, self.chain];
        begin.iter().chain(rule).map(|word| (*word).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(family: Family, of: impl Fn(&Piece) -> Vec<String>) -> Vec<String> {
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
        assert_eq!(told(Family::V4, Piece::remedy), expected);
        expected.drain(1..5);
        assert_eq!(told(Family::V6, Piece::remedy), expected);
    }

    #[test]
    fn a_question_changes_nothing_and_names_the_same_thing() {
        for family in Family::ALL {
            for (question, remedy) in told(family, Piece::question).iter().zip(told(family, Piece::remedy)) {
                let asked = question.replace(" -S ", " -N ").replace(" -C ", " -I ");
                assert!(asked == remedy || asked == remedy.replace(" -A ", " -I "), "{question}");
                assert!(question.contains(" -S ") || question.contains(" -C "), "{question}");
            }
        }
    }
}
