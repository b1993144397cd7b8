#![no_main]
#![allow(missing_docs, reason = "documented where it is written: mez_fuzz::nut")]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mez_fuzz::nut(bytes));
