// The entry of vendor/noble-hashes.js: the digest of a plan, which is that of the command line and of the node.
import { blake2b } from "@noble/hashes/blake2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";

/** BLAKE2b of 8 bytes of a text, in hexadecimal digits. */
export const digest = (text) => bytesToHex(blake2b(utf8ToBytes(text), { dkLen: 8 }));
