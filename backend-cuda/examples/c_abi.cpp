// A host in C++ that decodes on a stream of its own, with the driver's interface for memory. Hosts of the CUDA runtime
// pass their cudaStream_t and pointers of cudaMalloc in the same places.
//
//   cargo build --release -p condprog-cuda --example c_abi
//   c++ -std=c++17 backend-cuda/examples/c_abi.cpp -Ltarget/release/examples -lc_abi -lcuda -o c_abi

#include <cstdio>
#include <cstring>
#include <vector>

#include "c_abi.h"

// Of cuda.h, so that this example builds without the toolkit.
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuMemAlloc_v2(unsigned long long* address, size_t bytes);
int cuMemFree_v2(unsigned long long address);
int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes);
int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamSynchronize(void* stream);
}

#define CHECK(CALL)                                                                                                   \
    if (int code = (CALL)) {                                                                                          \
        fprintf(stderr, #CALL ": %d\n", code);                                                                        \
        return 1;                                                                                                     \
    }

int main() {
    // 100 rows of 8 values at 2 bits: two bytes of code and a scale of 1 each.
    std::vector<uint8_t> records;
    for (int i = 0; i < 100; i++) records.insert(records.end(), {(uint8_t)i, (uint8_t)(3 * i), 0x00, 0x0c});
    void* decoder = nullptr;
    if (condprog_cuda_open(0, records.data(), records.size(), 100, 8, 8, 1.0, &decoder) != 0) {
        printf("not run: %s\n", condprog_cuda_error());
        return 0;
    }

    // The context that the library opened is the primary one; this thread shares it.
    void *context, *stream;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, 1));

    const int32_t ids[3] = {42, -1, 99};
    float rows[3 * 8];
    uint64_t missing = ~0ull;
    unsigned long long ids_at, rows_at, missing_at;
    CHECK(cuMemAlloc_v2(&ids_at, sizeof ids));
    CHECK(cuMemAlloc_v2(&rows_at, sizeof rows));
    CHECK(cuMemAlloc_v2(&missing_at, sizeof missing));
    CHECK(cuMemcpyHtoD_v2(ids_at, ids, sizeof ids));
    CHECK(cuMemcpyHtoD_v2(missing_at, &missing, sizeof missing));
    // From pageable memory these return before the data has landed, and no other stream waits for it.
    CHECK(cuStreamSynchronize(nullptr));

    if (condprog_cuda_enqueue(decoder, stream, (void*)ids_at, 4, 3, (void*)rows_at, 2, (uint64_t*)missing_at) != 0) {
        fprintf(stderr, "%s\n", condprog_cuda_error());
        return 1;
    }
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH_v2(rows, rows_at, sizeof rows));
    CHECK(cuMemcpyDtoH_v2(&missing, missing_at, sizeof missing));
    for (int row = 0; row < 3; row++) {
        printf("%d:", ids[row]);
        for (int i = 0; i < 8; i++) printf(" %g", rows[8 * row + i]);
        printf("\n");
    }
    printf("first missing position: %llu\n", (unsigned long long)missing);

    condprog_cuda_close(decoder);
    CHECK(cuMemFree_v2(ids_at));
    CHECK(cuMemFree_v2(rows_at));
    CHECK(cuMemFree_v2(missing_at));
    return 0;
}
