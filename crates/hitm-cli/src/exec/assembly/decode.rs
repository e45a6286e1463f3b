//! What an instruction does to memory, from its bytes.

use std::ops::Range;

use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderError, DecoderOptions, Instruction, InstructionInfoFactory, MemorySize,
    Mnemonic, OpAccess, OpKind, Register,
};

/// How an instruction accesses its operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    Store,
    /// Loads and stores, and others may store in between.
    Update,
    /// A read-modify-write: nothing comes in between.
    Rmw,
}

/// An operand in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// Registers and displacement; none where the text has a symbol, whose value the linker knows.
    registers: Option<Address>,
    /// Whether the address is relative to the thread-local storage.
    pub(crate) in_storage: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    base: Register,
    index: Register,
    scale: u32,
    displacement: i64,
}

impl Operand {
    /// As the assembler takes it in AT&T syntax, when `pushed` bytes are on the stack that were not
    /// there before. `None` where a symbol is part of it.
    pub(crate) fn text(&self, pushed: i64) -> Option<String> {
        let Address { base, index, scale, displacement } = self.registers.as_ref()?;
        let displacement = if *base == Register::RSP { displacement + pushed } else { *displacement };
        let name = |register: &Register| match register {
            Register::None => String::new(),
            register => format!("%{register:?}").to_lowercase(),
        };
        let inside = match (base, index) {
            (Register::None, Register::None) => return Some(displacement.to_string()),
            (base, Register::None) => name(base),
            (base, index) => format!("{},{},{scale}", name(base), name(index)),
        };
        Some(format!("{displacement}({inside})"))
    }
}

/// What an instruction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that another CPU could see.
    Nothing,
    /// It accesses `size` bytes.
    Access { kind: Kind, size: usize, operand: Operand },
    /// It copies elements of `size` bytes from where RSI points to where RDI does.
    Copy { size: usize, repeats: bool },
    /// It fills elements of `size` bytes where RDI points.
    Fill { size: usize, repeats: bool },
    /// A full fence.
    Fence,
    /// The hint of a loop that waits.
    Pause,
    /// Something that cannot be told to the machine, and why.
    Unknown(&'static str),
}

/// Bytes that are no sequence of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoCode {
    /// The last one has more bytes.
    Incomplete,
    Invalid,
}

/// An instruction among others.
pub(crate) struct Decoded {
    instruction: Instruction,
    offsets: ConstantOffsets,
    /// Of its first byte.
    at: usize,
}

/// Decodes all of `bytes`.
///
/// # Errors
/// When they are no instructions of 64-bit code, or the last one is not whole.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Decoded>, NoCode> {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut all = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            let is_short = decoder.last_error() == DecoderError::NoMoreBytes;
            return Err(if is_short { NoCode::Incomplete } else { NoCode::Invalid });
        }
        all.push(Decoded { instruction, offsets: decoder.get_constant_offsets(&instruction), at });
    }
    Ok(all)
}

impl Decoded {
    /// What the instruction does. `is_relocated` tells whether the linker changes bytes.
    pub(crate) fn effect(&self, is_relocated: impl Fn(Range<usize>) -> bool) -> Effect {
        let instruction = &self.instruction;
        if let Some(effect) = by_name(instruction.mnemonic()) {
            return effect;
        }
        let kinds: Vec<OpKind> = instruction.op_kinds().collect();
        let explicit: Vec<u32> =
            (0..).zip(&kinds).filter(|&(_, &kind)| kind == OpKind::Memory).map(|(at, _)| at).collect();
        match *explicit {
            [] => without_operand(instruction, &kinds),
            [at] => {
                let start = self.at + self.offsets.displacement_offset();
                let symbol =
                    self.offsets.has_displacement() && is_relocated(start..start + self.offsets.displacement_size());
                access(instruction, at, symbol)
            }
            _ => Effect::Unknown("it has two operands in memory"),
        }
    }
}

/// Instructions that are known by their names.
fn by_name(mnemonic: Mnemonic) -> Option<Effect> {
    Some(match mnemonic {
        Mnemonic::Pause => Effect::Pause,
        Mnemonic::Mfence => Effect::Fence,
        // Addresses that are computed, hinted at, or part of an instruction that only traps.
        Mnemonic::Lea | Mnemonic::Nop | Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2 => Effect::Nothing,
        Mnemonic::Prefetch
        | Mnemonic::Prefetchnta
        | Mnemonic::Prefetcht0
        | Mnemonic::Prefetcht1
        | Mnemonic::Prefetcht2
        | Mnemonic::Prefetchw
        | Mnemonic::Prefetchwt1 => Effect::Nothing,
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int => {
            Effect::Unknown("a system call that goes past the simulated kernel; call the C library's function")
        }
        Mnemonic::Xbegin | Mnemonic::Xend | Mnemonic::Xabort => Effect::Unknown("the machine has no transactions"),
        Mnemonic::Monitor
        | Mnemonic::Mwait
        | Mnemonic::Monitorx
        | Mnemonic::Mwaitx
        | Mnemonic::Umonitor
        | Mnemonic::Umwait
        | Mnemonic::Tpause => Effect::Unknown("the machine's CPUs do not wait by it"),
        Mnemonic::Clflush | Mnemonic::Clflushopt | Mnemonic::Clwb | Mnemonic::Cldemote => {
            Effect::Unknown("the machine's caches are not flushed")
        }
        Mnemonic::Rdpid => Effect::Unknown("it tells the host's CPU; call sched_getcpu"),
        Mnemonic::Wrfsbase | Mnemonic::Wrgsbase => Effect::Unknown("it moves the thread-local storage"),
        _ => return None,
    })
}

/// Instructions whose access has no operand: those of strings, and the stack's. What compilers push
/// and pop is not seen either: a stack is one thread's.
fn without_operand(instruction: &Instruction, kinds: &[OpKind]) -> Effect {
    let is_string = kinds.iter().any(|kind| {
        !matches!(
            kind,
            OpKind::Register
                | OpKind::NearBranch16
                | OpKind::NearBranch32
                | OpKind::NearBranch64
                | OpKind::FarBranch16
                | OpKind::FarBranch32
                | OpKind::Immediate8
                | OpKind::Immediate8_2nd
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate64
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32to64
        )
    });
    if !is_string {
        return Effect::Nothing;
    }
    let repeats = instruction.has_rep_prefix();
    let is_plain = instruction.segment_prefix() == Register::None && !instruction.has_repne_prefix();
    let size = instruction.memory_size().size();
    match (kinds, instruction.code()) {
        ([OpKind::MemoryESRDI, OpKind::MemorySegRSI], _) if is_plain => Effect::Copy { size, repeats },
        (
            [OpKind::MemoryESRDI, OpKind::Register],
            Code::Stosb_m8_AL | Code::Stosw_m16_AX | Code::Stosd_m32_EAX | Code::Stosq_m64_RAX,
        ) if is_plain => Effect::Fill { size, repeats },
        _ => Effect::Unknown("a string instruction that is not understood"),
    }
}

/// An instruction whose operand `at` is in memory.
fn access(instruction: &Instruction, at: u32, symbol: bool) -> Effect {
    if instruction.is_vsib() || instruction.op_mask() != Register::None {
        return Effect::Unknown("it accesses some elements of a vector only");
    }
    let is_bit = matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
    if is_bit && instruction.op1_kind() == OpKind::Register {
        return Effect::Unknown("the number of its bit is in a register, so it may access another word");
    }
    let mut factory = InstructionInfoFactory::new();
    let access = factory.info(instruction).op_access(at);
    let is_atomic = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
    let kind = match access {
        OpAccess::None | OpAccess::NoMemAccess => return Effect::Nothing,
        OpAccess::Read | OpAccess::CondRead => Kind::Load,
        OpAccess::Write => Kind::Store,
        OpAccess::CondWrite => return Effect::Unknown("it stores under a condition"),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite if is_atomic => Kind::Rmw,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Kind::Update,
    };
    let size = match instruction.memory_size() {
        MemorySize::Unknown => 0,
        size => size.size(),
    };
    let is_wide = !matches!(size, 1 | 2 | 4 | 8 | 16);
    if size == 0 || (is_wide && matches!(kind, Kind::Update | Kind::Rmw)) {
        return Effect::Unknown("the size of its operand is not known");
    }
    let base = instruction.memory_base();
    let displacement = match instruction.memory_displ_size() {
        8 => instruction.memory_displacement64() as i64,
        _ => i64::from(instruction.memory_displacement64() as i32),
    };
    if base == Register::RSP && displacement < 0 {
        return Effect::Unknown("what is below the stack pointer is overwritten by calls");
    }
    let in_storage = match instruction.memory_segment() {
        Register::FS => true,
        Register::GS => return Effect::Unknown("it is relative to the GS segment"),
        _ => false,
    };
    let symbol = symbol || matches!(base, Register::RIP | Register::EIP);
    let address =
        Address { base, index: instruction.memory_index(), scale: instruction.memory_index_scale(), displacement };
    if !symbol && i32::try_from(displacement).is_err() {
        return Effect::Unknown("its address has 64 bits");
    }
    Effect::Access { kind, size, operand: Operand { registers: (!symbol).then_some(address), in_storage } }
}

#[cfg(test)]
mod tests {
    use super::{Effect, Kind, NoCode, decode};

    fn effect(bytes: &[u8]) -> Effect {
        let all = decode(bytes).unwrap();
        assert_eq!(all.len(), 1);
        all[0].effect(|_| false)
    }

    #[test]
    fn prefixes_alone_are_incomplete() {
        // `lock`, `rep`, and two bytes of `ud1`.
        for bytes in [&[0xf0][..], &[0xf3], &[0x0f, 0xb9]] {
            assert_eq!(decode(bytes).err(), Some(NoCode::Incomplete));
        }
        // `push %es`, which 64-bit code lacks, with the byte that the decoder looks at.
        assert_eq!(decode(&[0x06, 0xc0]).err(), Some(NoCode::Invalid));
    }

    #[test]
    fn instructions_access_what_they_say() {
        // movw 0x10(%rsp,%rax,2), %dx
        let Effect::Access { kind: Kind::Load, size: 2, operand } = effect(&[0x66, 0x8b, 0x54, 0x44, 0x10]) else {
            panic!("a load")
        };
        assert_eq!(operand.text(8).as_deref(), Some("24(%rsp,%rax,2)"));
        // movl -4(%edi), %eax
        let Effect::Access { operand, .. } = effect(&[0x67, 0x8b, 0x47, 0xfc]) else { panic!("a load") };
        assert_eq!(operand.text(8).as_deref(), Some("-4(%edi)"));
        // xchg %al, (%rbx); lock cmpxchg16b (%rdi)
        assert!(matches!(effect(&[0x86, 0x03]), Effect::Access { kind: Kind::Rmw, size: 1, .. }));
        assert!(matches!(effect(&[0xf0, 0x48, 0x0f, 0xc7, 0x0f]), Effect::Access { kind: Kind::Rmw, size: 16, .. }));
        // incl (%rdi); movl %fs:(%rax), %ecx
        assert!(matches!(effect(&[0xff, 0x07]), Effect::Access { kind: Kind::Update, size: 4, .. }));
        assert!(matches!(effect(&[0x64, 0x8b, 0x08]), Effect::Access { operand, .. } if operand.in_storage));
        // pause; mfence; rep movsb; stosq
        assert_eq!(effect(&[0xf3, 0x90]), Effect::Pause);
        assert_eq!(effect(&[0x0f, 0xae, 0xf0]), Effect::Fence);
        assert_eq!(effect(&[0xf3, 0xa4]), Effect::Copy { size: 1, repeats: true });
        assert_eq!(effect(&[0x48, 0xab]), Effect::Fill { size: 8, repeats: false });
        // lea 8(%rax), %rbx; push %rax; lfence; rdtsc; cpuid; nopw (%rax,%rax)
        for bytes in [&[0x48, 0x8d, 0x58, 8][..], &[0x50], &[0x0f, 0xae, 0xe8], &[0x0f, 0x31], &[0x0f, 0xa2]] {
            assert_eq!(effect(bytes), Effect::Nothing, "{bytes:x?}");
        }
        // syscall; lock bts %eax, (%rdi); movl %gs:(%rax), %ecx; repne scasb; movl -8(%rsp), %eax
        let unknown: [&[u8]; 5] =
            [&[0x0f, 0x05], &[0xf0, 0x0f, 0xab, 0x07], &[0x65, 0x8b, 0x08], &[0xf2, 0xae], &[0x8b, 0x44, 0x24, 0xf8]];
        for bytes in unknown {
            assert!(matches!(effect(bytes), Effect::Unknown(_)), "{bytes:x?}");
        }
    }
}
