// CRC-32C (RFC 3720, appendix B.4), eight bytes a step.

const TABLES = tables();

function tables(): Uint32Array[] {
  const all = Array.from({ length: 8 }, () => new Uint32Array(256));
  const first = all[0] as Uint32Array;
  for (let byte = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
    first[byte] = crc >>> 0;
  }
  for (let step = 1; step < 8; step++) {
    const before = all[step - 1] as Uint32Array;
    const table = all[step] as Uint32Array;
    for (let byte = 0; byte < 256; byte++) {
      const crc = before[byte] as number;
      table[byte] = ((crc >>> 8) ^ (first[crc & 0xff] as number)) >>> 0;
    }
  }
  return all;
}

/** The sum over what `crc` covers, then `data`. Begin with 0. */
export function extend(crc: number, data: Uint8Array): number {
  const [t0, t1, t2, t3, t4, t5, t6, t7] = TABLES as [
    Uint32Array, Uint32Array, Uint32Array, Uint32Array, Uint32Array, Uint32Array, Uint32Array, Uint32Array,
  ];
  let sum = ~crc;
  let at = 0;
  for (const whole = data.length - 7; at < whole; at += 8) {
    sum ^= data[at]! | (data[at + 1]! << 8) | (data[at + 2]! << 16) | (data[at + 3]! << 24);
    sum =
      t7[sum & 0xff]! ^
      t6[(sum >>> 8) & 0xff]! ^
      t5[(sum >>> 16) & 0xff]! ^
      t4[sum >>> 24]! ^
      t3[data[at + 4]!]! ^
      t2[data[at + 5]!]! ^
      t1[data[at + 6]!]! ^
      t0[data[at + 7]!]!;
  }
  for (; at < data.length; at++) sum = (sum >>> 8) ^ t0[(sum ^ data[at]!) & 0xff]!;
  return ~sum >>> 0;
}
