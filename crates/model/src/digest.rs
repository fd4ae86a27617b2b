//! SHA-256 (FIPS 180-4): names of files and fingerprints of content. Never used where time tells a secret: nothing here is
//! compared with what an attacker chooses.

const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// Bytes that are mixed in at once.
const BLOCK: usize = 64;

/// The digest of the text in hexadecimal, 64 characters.
#[must_use]
pub fn sha256_hex(content: &[u8]) -> String {
    let mut state = START;
    let constants = round_constants();
    let mut blocks = content.chunks_exact(BLOCK);
    for block in &mut blocks {
        mix(&mut state, block, &constants);
    }
    // The rest, a single bit, zeros, and the length in bits at the end of a block.
    let mut last = blocks.remainder().to_vec();
    last.push(0x80);
    while last.len() % BLOCK != BLOCK - 8 {
        last.push(0);
    }
    last.extend((content.len() as u64).wrapping_mul(8).to_be_bytes());
    for block in last.chunks_exact(BLOCK) {
        mix(&mut state, block, &constants);
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

fn mix(state: &mut [u32; 8], block: &[u8], constants: &[u32; 64]) {
    let mut words = [0_u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for i in 16..words.len() {
        let (a, b) = (words[i - 15], words[i - 2]);
        let small = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
        let large = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
        words[i] = words[i - 16].wrapping_add(small).wrapping_add(words[i - 7]).wrapping_add(large);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in words.iter().zip(constants) {
        let first = (e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25))
            .wrapping_add(e & f ^ !e & g)
            .wrapping_add(h)
            .wrapping_add(*constant)
            .wrapping_add(*word);
        let second =
            (a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22)).wrapping_add(a & b ^ a & c ^ b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (kept, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *kept = kept.wrapping_add(word);
    }
}

/// The first 32 bits behind the point of the cube roots of the first 64 primes, computed with whole numbers: the root of
/// `p · 2^96` is the root of `p` with 32 bits behind the point.
fn round_constants() -> [u32; 64] {
    let mut constants = [0; 64];
    let is_prime = |n: &u128| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    for (constant, prime) in constants.iter_mut().zip((2..).filter(is_prime)) {
        // The root of the largest prime, 311, is below 7.
        let (mut low, mut high) = (0_u128, 7 << 32);
        while high - low > 1 {
            let middle = u128::midpoint(low, high);
            if middle.pow(3) <= prime << 96 {
                low = middle;
            } else {
                high = middle;
            }
        }
        let [.., a, b, c, d] = low.to_be_bytes();
        *constant = u32::from_be_bytes([a, b, c, d]);
    }
    constants
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digests_are_those_of_the_standard() {
        let check = |content: &[u8], expected| assert_eq!(sha256_hex(content), expected);
        check(b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check(b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check(
            b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        );
        check(&vec![b'a'; 1_000_000], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }

    #[test]
    fn every_length_around_the_edge_of_a_block_differs() {
        let all: std::collections::BTreeSet<String> = (50..140).map(|n| sha256_hex(&vec![0; n])).collect();
        assert_eq!(all.len(), 90);
    }
}
