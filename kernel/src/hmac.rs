//! HMAC with SHA-256 (RFC 2104), by states that are computed once: a short text then costs two blocks of the hash function.

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};

const BLOCK: usize = 64;
const HEX: &[u8; 16] = b"0123456789abcdef";
/// The initial state of SHA-256 (FIPS 180-4, 5.3.3).
const INITIAL: State = [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

type State = [u32; 8];

/// A secret, as the states of the hash function behind the blocks that are made of it.
pub struct Secret {
    inner: State,
    outer: State,
}

impl Secret {
    pub fn new(secret: &[u8]) -> Self {
        let mut key = [0; BLOCK];
        if secret.len() > BLOCK {
            key[..32].copy_from_slice(&Sha256::digest(secret));
        } else {
            key[..secret.len()].copy_from_slice(secret);
        }
        let behind = |pad: u8| {
            let mut state = INITIAL;
            compress256(&mut state, &[key.map(|byte| byte ^ pad)]);
            state
        };
        Secret { inner: behind(0x36), outer: behind(0x5c) }
    }

    /// Append the hexadecimal digits of the text's HMAC.
    pub fn append_hex(&self, text: &[u8], out: &mut Vec<u8>) {
        let inner = finished(self.inner, text);
        let hash = finished(self.outer, &inner);
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 0x0f)];
        }
        out.extend_from_slice(&digits);
    }
}

/// The hash of a block and a text, given the state behind the block.
fn finished(mut state: State, text: &[u8]) -> [u8; 32] {
    let mut blocks = text.chunks_exact(BLOCK);
    for block in &mut blocks {
        let mut whole = [0; BLOCK];
        whole.copy_from_slice(block);
        compress256(&mut state, &[whole]);
    }
    let rest = blocks.remainder();
    let mut last = [[0; BLOCK]; 2];
    last[0][..rest.len()].copy_from_slice(rest);
    last[0][rest.len()] = 0x80;
    let count = if rest.len() < BLOCK - 8 { 1 } else { 2 };
    let bits = ((BLOCK + text.len()) as u64) * 8;
    last[count - 1][BLOCK - 8..].copy_from_slice(&bits.to_be_bytes());
    compress256(&mut state, &last[..count]);
    let mut hash = [0; 32];
    for (bytes, word) in hash.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(secret: &[u8], text: &[u8]) -> String {
        let mut out = Vec::new();
        Secret::new(secret).append_hex(text, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_values_are_those_of_rfc_4231() {
        assert_eq!(hex(&[0x0b; 20], b"Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        let text = b"This is a test using a larger than block-size key and a larger than block-size data. \
            The key needs to be hashed before being used by the HMAC algorithm.";
        assert_eq!(hex(&[0xaa; 131], text), "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
    }
}
