// A CUDA driver without a GPU, as a library named libcuda: as much of the driver's interface as the CUDA backend uses.
// Device memory is host memory, and a launch runs the kernel on the CPU before it returns. With this library on the
// path, the backend's own code runs whole, from opening a device to replaying a graph.
//
// It is strict where a real driver lets mistakes pass: copies must lie within an allocation, frees and unregistrations
// must fit, and while a stream is capturing the thread that began it may not allocate, synchronize or copy. A copy from
// pageable memory returns when it is staged, as the driver's documentation has it, and lands as late as is allowed: when
// its stream, or one that is ordered behind it, is used or waited for.
//
// CONDPROG_DRIVER_FAIL="cuMemAlloc_v2=2,cuInit=100" lets functions fail with these codes.
// CONDPROG_DRIVER_LOG=FILE appends a line to FILE for every launch, every wait that succeeded, and everything that is
// page-locked, unlocked, freed, unloaded or destroyed, in order.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device.h"

#include "decode.cu"
#include "bench.cu"

namespace {

enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    CAPTURE_UNSUPPORTED = 900,
};

struct Kernel {
    const char* name;
    std::vector<size_t> parameters; // sizes
    void (*run)(const void*);       // with parameters one after another, each at a multiple of 8
};

template <class T> const T& parameter(const void* packed, size_t at) { return *(const T*)((const char*)packed + 8 * at); }

#define DECODER(NAME) {#NAME, {sizeof(Request)}, [](const void* p) { NAME(parameter<Request>(p, 0)); }}
#define DECODERS(SUFFIX)                                                                                              \
    DECODER(decode_r8_d160_##SUFFIX), DECODER(decode_r6_d256_##SUFFIX), DECODER(decode_r8_d256_##SUFFIX),             \
        DECODER(decode_r10_d256_##SUFFIX), DECODER(decode_r12_d256_##SUFFIX), DECODER(decode_any_##SUFFIX)
#define GATHER(NAME)                                                                                                  \
    {#NAME, {8, 8, 8, 8}, [](const void* p) {                                                                         \
         NAME(parameter<uint4*>(p, 0), parameter<i64*>(p, 1), parameter<uint4*>(p, 2), parameter<u64>(p, 3));         \
     }}

const Kernel kernels[] = {
    DECODERS(bf16),
    DECODERS(f16),
    DECODERS(f32),
    GATHER(gather_512),
    GATHER(gather_256),
    {"fill", {8, 8, 8}, [](const void* p) { fill(parameter<u32*>(p, 0), parameter<u64>(p, 1), parameter<u64>(p, 2)); }},
};

struct Launch {
    const Kernel* kernel;
    u32 blocks, threads;
    std::vector<u64> parameters;
    void run() const { block::launch({blocks, 0, threads, block::Order::Forward, 0}, kernel->run, parameters.data()); }
};

typedef std::vector<Launch> Graph;

struct Stream {
    bool blocking; // ordered with the default stream
    void* context;
};

// The default stream of each thread, which needs no making. Here all threads have the same one.
Stream* const PER_THREAD = (Stream*)2;

struct Event {
    std::chrono::steady_clock::time_point at;
    void* stream;
};

// A copy from pageable memory that is staged.
struct Upload {
    void* stream;
    u64 to;
    std::vector<char> bytes;
};

std::mutex lock; // of everything here, and of the model of a block
std::map<u64, u64> allocations, registrations; // address to bytes
std::vector<Upload> uploads; // in order
u64 free_bytes = 8ull << 30;
bool retained = false;
void* capturing = nullptr;  // the stream
std::thread::id capturer;   // the thread that began
Graph captured;
thread_local std::vector<void*> contexts; // pushed; the last is current
int context_, module_;

void* current() { return contexts.empty() ? nullptr : contexts.back(); }

// What CONDPROG_DRIVER_FAIL says about a function.
int planned(const char* function) {
    const char* plan = getenv("CONDPROG_DRIVER_FAIL");
    if (plan == nullptr) return SUCCESS;
    const std::string text = std::string(",") + plan, name = std::string(",") + function + "=";
    const size_t at = text.find(name);
    return at == std::string::npos ? SUCCESS : atoi(text.c_str() + at + name.size());
}

bool within(const std::map<u64, u64>& ranges, u64 address, u64 bytes) {
    auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) return false;
    auto range = std::prev(after);
    return address - range->first <= range->second && bytes <= range->second - (address - range->first);
}

bool on_device(u64 address, u64 bytes) { return within(allocations, address, bytes); }

// Whether work on a stream comes after what was put on another before. Null is the default stream.
bool ordered(void* before, void* after) {
    auto with_default = [](void* stream) {
        return stream == nullptr || stream == PER_THREAD || ((Stream*)stream)->blocking;
    };
    return before == after || ((before == nullptr || after == nullptr) && with_default(before) && with_default(after));
}

// Lets the uploads land that work on a stream comes after.
void land(void* stream) {
    std::vector<Upload> later;
    for (Upload& upload : uploads) {
        if (ordered(upload.stream, stream)) memcpy((void*)upload.to, upload.bytes.data(), upload.bytes.size());
        else later.push_back(std::move(upload));
    }
    uploads = std::move(later);
}

void land_all() {
    for (const Upload& upload : uploads) memcpy((void*)upload.to, upload.bytes.data(), upload.bytes.size());
    uploads.clear();
}

void upload(u64 to, const void* from, size_t bytes, void* stream) {
    land(stream);
    if (within(registrations, (u64)from, bytes)) memcpy((void*)to, from, bytes);
    else uploads.push_back({stream, to, std::vector<char>((const char*)from, (const char*)from + bytes)});
}

// A line of the log.
void note(const char* what, u64 address = 0, u64 bytes = 0) {
    const char* path = getenv("CONDPROG_DRIVER_LOG");
    FILE* file = path ? fopen(path, "a") : nullptr;
    if (file == nullptr) return;
    fprintf(file, "%s %llu %llu\n", what, (unsigned long long)address, (unsigned long long)bytes);
    fclose(file);
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) int
#define BEGIN                                                                                                         \
    std::lock_guard<std::mutex> held(lock);                                                                           \
    if (int code = planned(__func__)) return code
#define NEED_CONTEXT                                                                                                  \
    if (current() == nullptr) return INVALID_CONTEXT
#define NOT_WHILE_CAPTURING                                                                                           \
    if (capturing != nullptr && capturer == std::this_thread::get_id()) return CAPTURE_UNSUPPORTED
#define NEED(CONDITION)                                                                                               \
    if (!(CONDITION)) return INVALID_VALUE

// ---- Devices and contexts ----

EXPORT cuInit(unsigned) {
    BEGIN;
    return SUCCESS;
}
EXPORT cuDeviceGetCount(int* count) {
    BEGIN;
    *count = 1;
    return SUCCESS;
}
EXPORT cuDeviceGet(int* device, int ordinal) {
    BEGIN;
    if (ordinal != 0) return INVALID_DEVICE;
    *device = 0;
    return SUCCESS;
}
EXPORT cuDeviceGetName(char* name, int length, int) {
    BEGIN;
    snprintf(name, (size_t)length, "no GPU: driver simulated on the CPU");
    return SUCCESS;
}
EXPORT cuDeviceGetAttribute(int* value, int attribute, int) {
    BEGIN;
    const char* old = getenv("CONDPROG_DRIVER_CAPABILITY"); // such as "75"
    const int capability = old ? atoi(old) : 90;
    switch (attribute) {
    case 16: *value = 2; break;                // multiprocessors
    case 75: *value = capability / 10; break;  // compute capability, major
    case 76: *value = capability % 10; break;  // and minor
    case 113: *value = 1; break;               // read-only host registration
    default: *value = 0;
    }
    return SUCCESS;
}
EXPORT cuDeviceTotalMem_v2(size_t* bytes, int) {
    BEGIN;
    *bytes = 8ull << 30;
    return SUCCESS;
}
EXPORT cuDevicePrimaryCtxRetain(void** context, int) {
    BEGIN;
    retained = true;
    *context = &context_;
    return SUCCESS;
}
EXPORT cuDevicePrimaryCtxRelease_v2(int) {
    BEGIN;
    return retained ? SUCCESS : INVALID_CONTEXT;
}
EXPORT cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }
EXPORT cuCtxCreate_v4(void** context, void* parameters, unsigned, int) {
    BEGIN;
    NEED(parameters == nullptr);
    *context = new int;
    contexts.push_back(*context);
    return SUCCESS;
}
EXPORT cuCtxDestroy_v2(void* context) {
    BEGIN;
    NEED(context != nullptr && context != &context_);
    if (current() == context) contexts.pop_back();
    note("destroy-context");
    delete (int*)context;
    return SUCCESS;
}
EXPORT cuCtxSetCurrent(void* context) {
    BEGIN;
    if (!contexts.empty()) contexts.pop_back();
    if (context != nullptr) contexts.push_back(context);
    return SUCCESS;
}
EXPORT cuCtxGetCurrent(void** context) {
    BEGIN;
    *context = current();
    return SUCCESS;
}
EXPORT cuCtxPushCurrent_v2(void* context) {
    BEGIN;
    NEED(context != nullptr);
    contexts.push_back(context);
    return SUCCESS;
}
EXPORT cuCtxPopCurrent_v2(void** context) {
    BEGIN;
    NEED_CONTEXT;
    *context = current();
    contexts.pop_back();
    return SUCCESS;
}
EXPORT cuCtxGetDevice(int* device) {
    BEGIN;
    NEED_CONTEXT;
    *device = 0;
    return SUCCESS;
}
EXPORT cuCtxSynchronize() {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    land_all();
    note("wait-context");
    return SUCCESS;
}

// ---- Memory ----

EXPORT cuMemGetInfo_v2(size_t* free, size_t* total) {
    BEGIN;
    NEED_CONTEXT;
    *free = free_bytes;
    *total = 8ull << 30;
    return SUCCESS;
}
EXPORT cuMemAlloc_v2(u64* address, size_t bytes) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    NEED(bytes > 0);
    void* memory = bytes > free_bytes ? nullptr : aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (memory == nullptr) return OUT_OF_MEMORY;
    memset(memory, 0xa5, bytes);
    free_bytes -= bytes;
    *address = (u64)memory;
    allocations[*address] = bytes;
    return SUCCESS;
}
EXPORT cuMemFree_v2(u64 address) {
    BEGIN;
    NEED_CONTEXT;
    auto found = allocations.find(address);
    NEED(found != allocations.end());
    land_all();
    note("free", address, found->second);
    free_bytes += found->second;
    allocations.erase(found);
    free((void*)address);
    return SUCCESS;
}
EXPORT cuMemHostRegister_v2(void* start, size_t bytes, unsigned) {
    BEGIN;
    NEED_CONTEXT;
    NEED(bytes > 0);
    for (const auto& [other, length] : registrations)
        if ((u64)start < other + length && other < (u64)start + bytes) return ALREADY_REGISTERED;
    registrations[(u64)start] = bytes;
    note("lock", (u64)start, bytes);
    return SUCCESS;
}
EXPORT cuMemHostUnregister(void* start) {
    BEGIN;
    if (registrations.erase((u64)start) != 1) return NOT_REGISTERED;
    note("unlock", (u64)start);
    return SUCCESS;
}
EXPORT cuMemHostGetDevicePointer_v2(u64* address, void* start, unsigned) {
    BEGIN;
    NEED(within(registrations, (u64)start, 1));
    *address = (u64)start;
    return SUCCESS;
}
EXPORT cuMemcpyHtoD_v2(u64 to, const void* from, size_t bytes) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    NEED(on_device(to, bytes));
    upload(to, from, bytes, nullptr);
    return SUCCESS;
}
EXPORT cuMemcpyDtoH_v2(void* to, u64 from, size_t bytes) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    NEED(on_device(from, bytes));
    land(nullptr);
    memcpy(to, (void*)from, bytes);
    return SUCCESS;
}
EXPORT cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t bytes, void* stream) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    NEED(on_device(to, bytes));
    upload(to, from, bytes, stream);
    return SUCCESS;
}
EXPORT cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t bytes, void* stream) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    NEED(on_device(from, bytes));
    land(stream);
    memcpy(to, (void*)from, bytes);
    return SUCCESS;
}
EXPORT cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t bytes, void* stream) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    NEED(on_device(to, bytes) && on_device(from, bytes));
    land(stream);
    memcpy((void*)to, (void*)from, bytes);
    return SUCCESS;
}
EXPORT cuMemsetD8Async(u64 to, unsigned char value, size_t bytes, void* stream) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    NEED(on_device(to, bytes));
    land(stream);
    memset((void*)to, value, bytes);
    return SUCCESS;
}

// ---- Modules and launches ----

EXPORT cuModuleLoadData(void** module, const void* image) {
    BEGIN;
    NEED_CONTEXT;
    NEED(strstr((const char*)image, ".version") != nullptr);
    *module = &module_;
    return SUCCESS;
}
EXPORT cuModuleUnload(void*) {
    BEGIN;
    note("unload");
    return SUCCESS;
}
EXPORT cuModuleGetFunction(void** function, void*, const char* name) {
    BEGIN;
    for (const Kernel& kernel : kernels) {
        if (strcmp(kernel.name, name) != 0) continue;
        *function = (void*)&kernel;
        return SUCCESS;
    }
    return NOT_FOUND;
}
EXPORT cuFuncSetAttribute(void*, int attribute, int value) {
    BEGIN;
    NEED(attribute == 9 && value >= -1 && value <= 100); // the division between shared memory and cache
    return SUCCESS;
}
EXPORT cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
    BEGIN;
    *blocks = 1;
    return SUCCESS;
}
EXPORT cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                      unsigned shared, void* stream, void** parameters, void** extra) {
    BEGIN;
    NEED_CONTEXT;
    NEED(function && x > 0 && y == 1 && z == 1 && ty == 1 && tz == 1 && shared == 0 && extra == nullptr);
    if (stream != nullptr && stream != PER_THREAD && ((Stream*)stream)->context != current()) return INVALID_CONTEXT;
    Launch launch = {(const Kernel*)function, x, threads, {}};
    for (size_t i = 0; i < launch.kernel->parameters.size(); i++) {
        const size_t bytes = launch.kernel->parameters[i], at = launch.parameters.size();
        launch.parameters.resize(at + (bytes + 7) / 8);
        memcpy(&launch.parameters[at], parameters[i], bytes);
    }
    if (capturing != nullptr && stream == capturing) {
        captured.push_back(std::move(launch));
    } else {
        land(stream);
        note("launch");
        launch.run();
    }
    return SUCCESS;
}

// ---- Streams, events, graphs ----

EXPORT cuStreamCreate(void** stream, unsigned flags) {
    BEGIN;
    NEED_CONTEXT;
    *stream = new Stream{(flags & 1) == 0, current()};
    return SUCCESS;
}
EXPORT cuStreamDestroy_v2(void* stream) {
    BEGIN;
    NEED(stream != nullptr);
    land(stream);
    note("destroy-stream");
    delete (Stream*)stream;
    return SUCCESS;
}
EXPORT cuStreamSynchronize(void* stream) {
    BEGIN;
    NEED_CONTEXT;
    NOT_WHILE_CAPTURING;
    land(stream);
    note("wait-stream");
    return SUCCESS;
}
EXPORT cuStreamWaitEvent(void*, void* event, unsigned) {
    BEGIN;
    land(((Event*)event)->stream);
    return SUCCESS;
}
EXPORT cuStreamBeginCapture_v2(void* stream, int) {
    BEGIN;
    NEED(stream != nullptr && capturing == nullptr);
    capturing = stream;
    capturer = std::this_thread::get_id();
    captured.clear();
    return SUCCESS;
}
EXPORT cuStreamEndCapture(void* stream, void** graph) {
    BEGIN;
    NEED(stream == capturing && stream != nullptr);
    capturing = nullptr;
    *graph = new Graph(std::move(captured));
    return SUCCESS;
}
EXPORT cuGraphInstantiateWithFlags(void** executable, void* graph, u64) {
    BEGIN;
    *executable = new Graph(*(Graph*)graph);
    return SUCCESS;
}
EXPORT cuGraphLaunch(void* executable, void* stream) {
    BEGIN;
    land(stream);
    note("launch");
    for (const Launch& launch : *(Graph*)executable) launch.run();
    return SUCCESS;
}
EXPORT cuGraphUpload(void*, void*) {
    BEGIN;
    return SUCCESS;
}
EXPORT cuGraphExecDestroy(void* executable) {
    BEGIN;
    delete (Graph*)executable;
    return SUCCESS;
}
EXPORT cuGraphDestroy(void* graph) {
    BEGIN;
    delete (Graph*)graph;
    return SUCCESS;
}
EXPORT cuEventCreate(void** event, unsigned) {
    BEGIN;
    *event = new Event{};
    return SUCCESS;
}
EXPORT cuEventRecord(void* event, void* stream) {
    BEGIN;
    *(Event*)event = {std::chrono::steady_clock::now(), stream};
    return SUCCESS;
}
EXPORT cuEventSynchronize(void* event) {
    BEGIN;
    land(((Event*)event)->stream);
    return SUCCESS;
}
EXPORT cuEventElapsedTime(float* milliseconds, void* from, void* to) {
    BEGIN;
    *milliseconds = std::chrono::duration<float, std::milli>(((Event*)to)->at - ((Event*)from)->at).count();
    return SUCCESS;
}
EXPORT cuEventDestroy_v2(void* event) {
    BEGIN;
    delete (Event*)event;
    return SUCCESS;
}
