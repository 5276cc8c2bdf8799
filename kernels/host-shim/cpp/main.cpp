// Runs decode.cu for a caller at the other end of two pipes: tables and requests in, rows out.
//
// All numbers are little-endian. A message is an u32:
//   0  table     u32 segments; for each: u64 first, u32 record_bytes, u32 rate, u32 skew, u64 bytes,
//                u64 at, u64 length, the bytes at..at+length of the records
//   1  request   u32 kernel length, its name, u32 blocks, u32 first block to run, u32 threads, u32 order, u32 seed,
//                u64 count, u64 rows, u32 dim, u32 id_bytes, u32 chunk_log2, u32 skew, u64 output bytes,
//                u64 at, u64 length, the ids at..at+length in bytes, u64 at, u64 length of the part of the output that
//                is wanted; answered by that part and an u64, the first missing position
//   2  gather    u32 bytes per row (256 or 512), u32 blocks, u32 threads, u64 rows, u64 count, the ids (8 bytes each);
//                answered by rows of a table that `fill` wrote
// A skew is how many bytes after a 16-byte boundary something starts. Every buffer is exactly as long as the kernel's
// contract says, so that the address sanitizer sees each byte beyond; without it, the output has a guard. Buffers of a
// GiB and more are mapped and only take the memory that is touched, so that offsets beyond 32 bits can be tried.

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "device.h"

#include "decode.cu"
#include "bench.cu"

namespace {

void read_exactly(void* into, size_t bytes) {
    if (bytes != 0 && fread(into, 1, bytes, stdin) != bytes) block::fail("input ends within a message", (int)bytes);
}

template <class T> T read() {
    T value;
    read_exactly(&value, sizeof value);
    return value;
}

#ifdef __SANITIZE_ADDRESS__
const size_t GUARD = 0;
#else
const size_t GUARD = 64;
#endif
const size_t MAPPED = (size_t)1 << 30;

// `bytes` bytes, `skew` after a multiple of 16, and after them what completes an aligned word of `word` bytes.
class Buffer {
    char* memory_;
    size_t skew_, total_;

public:
    Buffer(size_t bytes, size_t skew, size_t word) : skew_(skew), total_((skew + bytes + word - 1) / word * word) {
        if (total_ >= MAPPED) {
            memory_ = (char*)mmap(nullptr, total_ + GUARD, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory_ == MAP_FAILED) block::fail("no address space for MiB", (int)(total_ >> 20));
            memset(memory_ + total_, 0xa5, GUARD);
        } else {
            memory_ = (char*)malloc(total_ + GUARD + (total_ == 0)); // 16-byte aligned by malloc
            memset(memory_, 0xa5, total_ + GUARD);
        }
    }
    Buffer(Buffer&& other) : memory_(other.memory_), skew_(other.skew_), total_(other.total_) {
        other.memory_ = nullptr;
    }
    ~Buffer() {
        if (memory_ == nullptr) return;
        if (total_ >= MAPPED) munmap(memory_, total_ + GUARD);
        else free(memory_);
    }
    char* data() { return memory_ + skew_; }
    // Reads what part there is, at what offset.
    void receive() {
        const u64 at = read<u64>(), length = read<u64>();
        if (at > total_ - skew_ || length > total_ - skew_ - at) block::fail("a part beyond its buffer", (int)length);
        read_exactly(data() + at, length);
    }
    void check() const {
        for (size_t i = 0; i < skew_; i++)
            if (total_ < MAPPED && memory_[i] != (char)0xa5) block::fail("output written before its start", (int)i);
        for (size_t i = 0; i < GUARD; i++)
            if (memory_[total_ + i] != (char)0xa5) block::fail("output written beyond its end", (int)i);
    }
};

struct Kernel {
    const char* name;
    void (*run)(const void*);
};

#define KERNEL(NAME) {#NAME, [](const void* request) { NAME(*(const Request*)request); }}
#define KERNELS(SUFFIX)                                                                                               \
    KERNEL(decode_r8_d160_##SUFFIX), KERNEL(decode_r6_d256_##SUFFIX), KERNEL(decode_r8_d256_##SUFFIX),                \
        KERNEL(decode_r10_d256_##SUFFIX), KERNEL(decode_r12_d256_##SUFFIX), KERNEL(decode_any_##SUFFIX)

const Kernel kernels[] = {KERNELS(bf16), KERNELS(f16), KERNELS(f32)};

std::vector<Buffer> records;
std::vector<Segment> segments;

void table() {
    records.clear();
    segments.clear();
    const u32 count = read<u32>();
    for (u32 i = 0; i < count; i++) {
        Segment segment;
        segment.first = read<u64>();
        segment.record_bytes = read<u32>();
        segment.rate = read<u32>();
        const u32 skew = read<u32>();
        const u64 bytes = read<u64>();
        Buffer buffer(bytes, skew, 4);
        buffer.receive();
        segment.records = (u64)(size_t)buffer.data();
        segments.push_back(segment);
        records.push_back(std::move(buffer));
    }
}

void request() {
    std::string name(read<u32>(), ' ');
    read_exactly(name.data(), name.size());
    const u32 blocks = read<u32>(), first_block = read<u32>(), threads = read<u32>();
    const auto order = (block::Order)read<u32>();
    const u32 seed = read<u32>();
    Request request = {};
    request.count = read<u64>();
    request.rows = read<u64>();
    request.dim = read<u32>();
    request.id_bytes = read<u32>();
    request.chunk_log2 = read<u32>();
    const u32 skew = read<u32>();
    const u64 bytes = read<u64>();
    Buffer ids(request.count * request.id_bytes, 0, 1), out(bytes, skew, 1);
    ids.receive();
    const u64 at = read<u64>(), length = read<u64>();
    if (at > bytes || length > bytes - at) block::fail("a part beyond the output", (int)length);
    u64 missing = ~0ull;
    request.ids = ids.data();
    request.out = out.data();
    request.missing = &missing;
    request.segments = segments.data();
    request.segment_count = (u32)segments.size();
    for (const Kernel& kernel : kernels) {
        if (name != kernel.name) continue;
        block::launch({blocks, first_block, threads, order, seed}, kernel.run, &request);
        out.check();
        fwrite(out.data() + at, 1, length, stdout);
        fwrite(&missing, 1, sizeof missing, stdout);
        fflush(stdout);
        return;
    }
    block::fail("no such kernel", (int)name.size());
}

struct Gather {
    u32* table;
    u64 words;
    const i64* ids;
    uint4* out;
    u64 count;
    bool wide;
};

void gather_rows() {
    const u32 row = read<u32>(), blocks = read<u32>(), threads = read<u32>();
    const u64 rows = read<u64>(), count = read<u64>();
    Buffer table(rows * row, 0, 1), ids(count * 8, 0, 1), out(count * row, 0, 1);
    read_exactly(ids.data(), count * 8);
    const bool wide = row == 512;
    const Gather argument = {(u32*)table.data(), rows * row / 4, (i64*)ids.data(), (uint4*)out.data(), count, wide};
    const block::Launch launch = {blocks, 0, threads, block::Order::Forward, 0};
    block::launch(launch, [](const void* p) { fill(((Gather*)p)->table, 0, ((Gather*)p)->words); }, &argument);
    block::launch(
        launch,
        [](const void* p) {
            const Gather& it = *(const Gather*)p;
            if (it.wide) gather_512((uint4*)it.table, it.ids, it.out, it.count);
            else gather_256((uint4*)it.table, it.ids, it.out, it.count);
        },
        &argument);
    table.check();
    out.check();
    fwrite(out.data(), 1, count * row, stdout);
    fflush(stdout);
}

} // namespace

int main() {
    for (u32 kind; fread(&kind, 1, sizeof kind, stdin) == sizeof kind;) {
        switch (kind) {
        case 0: table(); break;
        case 1: request(); break;
        case 2: gather_rows(); break;
        default: block::fail("no such message", (int)kind);
        }
    }
    return 0;
}
