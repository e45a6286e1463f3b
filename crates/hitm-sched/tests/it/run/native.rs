//! On this machine, one thread a CPU.
