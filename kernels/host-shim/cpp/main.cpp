// Runs decode.cu for a caller at the other end of two pipes: tables and requests in, rows out.
//
// All numbers are little-endian. A message is an u32:
//   0  table     u32 segments; for each: u64 first, u32 record_bytes, u32 rate, u32 skew, u64 bytes, the bytes
//   1  request   u32 kernel length, its name, u32 blocks, u32 threads, u32 order, u32 seed,
//                u64 count, u64 rows, u32 dim, u32 id_bytes, u32 chunk_log2, u32 skew, u32 report,
//                u64 output bytes, the ids; answered by the output and an u64, the first missing position
// A skew is how many bytes after a 16-byte boundary something starts. Every buffer is exactly as long as the kernel's
// contract says, so that the address sanitizer sees each byte beyond.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "device.h"

#include CONDPROG_KERNEL

namespace {

void read_exactly(void* into, size_t bytes) {
    if (bytes != 0 && fread(into, 1, bytes, stdin) != bytes) block::fail("input ends within a message", (int)bytes);
}

template <class T> T read() {
    T value;
    read_exactly(&value, sizeof value);
    return value;
}

// `bytes` bytes, `skew` after a multiple of 16, and after them what completes an aligned word of `word` bytes.
struct Buffer {
    char* memory;
    size_t skew;
    Buffer(size_t bytes, size_t skew, size_t word) : skew(skew) {
        const size_t total = (skew + bytes + word - 1) / word * word;
        memory = (char*)malloc(total == 0 ? 1 : total); // 16-byte aligned by malloc
        memset(memory, 0xa5, total);
    }
    Buffer(Buffer&& other) : memory(other.memory), skew(other.skew) { other.memory = nullptr; }
    ~Buffer() { free(memory); }
    char* data() { return memory + skew; }
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
        read_exactly(buffer.data(), bytes);
        segment.records = (const u8*)buffer.data();
        segments.push_back(segment);
        records.push_back(std::move(buffer));
    }
}

void request() {
    std::string name(read<u32>(), ' ');
    read_exactly(name.data(), name.size());
    const u32 blocks = read<u32>(), threads = read<u32>();
    const auto order = (block::Order)read<u32>();
    const u32 seed = read<u32>();
    Request request = {};
    request.count = read<u64>();
    request.rows = read<u64>();
    request.dim = read<u32>();
    request.id_bytes = read<u32>();
    request.chunk_log2 = read<u32>();
    const u32 skew = read<u32>(), report = read<u32>();
    const u64 bytes = read<u64>();
    Buffer ids(request.count * request.id_bytes, 0, 1), out(bytes, skew, 1);
    read_exactly(ids.data(), request.count * request.id_bytes);
    u64 missing = ~0ull;
    request.ids = ids.data();
    request.out = out.data();
    request.missing = report ? &missing : nullptr;
    request.segments = segments.data();
    request.segment_count = (u32)segments.size();
    for (const Kernel& kernel : kernels) {
        if (name != kernel.name) continue;
        block::launch(blocks, threads, order, seed, kernel.run, &request);
        fwrite(out.data(), 1, bytes, stdout);
        fwrite(&missing, 1, sizeof missing, stdout);
        fflush(stdout);
        return;
    }
    block::fail("no such kernel", (int)name.size());
}

} // namespace

int main() {
    for (u32 kind; fread(&kind, 1, sizeof kind, stdin) == sizeof kind;) {
        switch (kind) {
        case 0: table(); break;
        case 1: request(); break;
        default: block::fail("no such message", (int)kind);
        }
    }
    return 0;
}
