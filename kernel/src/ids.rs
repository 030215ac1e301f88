//! Row ids.

use crate::column::Texts;

const BYTES: usize = 16;
const LENGTH: usize = 36;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Make the texts of UUIDs of version 7: 48 bits of a time in milliseconds, then random bits. `random` holds 16 bytes for each.
pub fn texts(milliseconds: u64, random: &[u8]) -> Texts {
    let count = random.len() / BYTES;
    let mut texts = Texts::new();
    texts.offsets.reserve_exact(count);
    texts.data.reserve_exact(count * LENGTH);
    let time = milliseconds.to_be_bytes();
    for bytes in random.chunks_exact(BYTES) {
        let mut id = [0; BYTES];
        id.copy_from_slice(bytes);
        id[..6].copy_from_slice(&time[2..]);
        id[6] = id[6] & 0x0f | 0x70;
        id[8] = id[8] & 0x3f | 0x80;
        texts.push(&text(id));
    }
    texts
}

fn text(id: [u8; BYTES]) -> [u8; LENGTH] {
    let mut text = [b'-'; LENGTH];
    let mut at = 0;
    for (ordinal, byte) in id.into_iter().enumerate() {
        if matches!(ordinal, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 0x0f)];
        at += 2;
    }
    text
}
