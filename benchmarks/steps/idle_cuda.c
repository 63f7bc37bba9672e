/* A libcuda that launches nothing and counts launches: Triton's own launcher runs on it as on a device, converts its
 * arguments and releases the interpreter's lock, without a GPU. Only what Triton 3.6 and 3.7 call is here.
 */
#include <stdint.h>
#include <stddef.h>

typedef int CUresult;

static int64_t num_launches = 0;
static int context = 0;

int64_t agon_num_launches(void) { return num_launches; }

CUresult cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra) {
    num_launches++;
    return 0;
}

CUresult cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer) {
    *(unsigned long long *)data = pointer;
    return 0;
}

CUresult cuPointerGetAttributes(unsigned int count, int *attributes, void **data, unsigned long long pointer) { return 0; }

/* An H100: shared memory, registers, multiprocessors, warp size, clocks. Other attributes are not read. */
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 97: *value = 232448; break;  /* shared memory that a block may ask for, bytes */
        case 81: *value = 233472; break;  /* shared memory of a multiprocessor, bytes */
        case 12: *value = 65536; break;   /* registers of a block */
        case 16: *value = 132; break;     /* multiprocessors */
        case 10: *value = 32; break;      /* threads of a warp */
        default: *value = 1; break;
    }
    return 0;
}

CUresult cuFuncGetAttribute(int *value, int attribute, void *function) {
    *value = attribute == 0 ? 1024 : 0;  /* 0: threads of a block */
    return 0;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = "an error of a device that does nothing";
    return 0;
}

CUresult cuCtxGetCurrent(void **current) { *current = &context; return 0; }
CUresult cuCtxSetCurrent(void *current) { return 0; }
CUresult cuCtxGetLimit(size_t *value, int limit) { *value = 0; return 0; }
CUresult cuCtxSetLimit(int limit, size_t value) { return 0; }
CUresult cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
CUresult cuDevicePrimaryCtxRetain(void **retained, int device) { *retained = &context; return 0; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return 0; }
CUresult cuFuncSetAttribute(void *function, int attribute, int value) { return 0; }
CUresult cuFuncSetCacheConfig(void *function, int config) { return 0; }
CUresult cuModuleLoadData(void **module, const void *image) { *module = &context; return 0; }
CUresult cuModuleGetFunction(void **function, void *module, const char *name) { *function = &context; return 0; }
CUresult cuOccupancyMaxActiveClusters(int *count, void *function, const void *config) { *count = 1; return 0; }
CUresult cuTensorMapEncodeTiled(void) { return 1; }
CUresult cuTensorMapEncodeIm2col(void) { return 1; }
