// SPDX-License-Identifier: MIT
/*
 * Destructors for DLPack capsules of the Python package. The library does not link with Python: it
 * looks the functions up in the process that it was loaded into.
 */
#include <peerlane/dlpack.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The layouts of DLPack, major versions 0 and 1. */
struct dl_tensor {
	void *data;
	int32_t device[2];
	int32_t ndim;
	uint8_t dtype[4];
	int64_t *shape;
	int64_t *strides;
	uint64_t byte_offset;
};

struct dl_managed {
	struct dl_tensor tensor;
	void *manager_ctx;
	void (*deleter)(void *self);
};

struct dl_versioned {
	uint32_t version[2];
	void *manager_ctx;
	void (*deleter)(void *self);
	uint64_t flags;
	struct dl_tensor tensor;
};

_Static_assert(offsetof(struct dl_managed, manager_ctx) == 48, "layout of DLManagedTensor");
_Static_assert(offsetof(struct dl_versioned, tensor) == 32, "layout of DLManagedTensorVersioned");

/* Functions of the stable ABI of CPython. */
struct python {
	int (*initialized)(void);
	int (*gil_ensure)(void);
	void (*gil_release)(int state);
	void (*err_fetch)(void **type, void **value, void **traceback);
	void (*err_restore)(void *type, void *value, void *traceback);
	void (*decref)(void *object);
};

static bool find_python(struct python *py)
{
	*(void **)&py->initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
	*(void **)&py->gil_ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
	*(void **)&py->gil_release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
	*(void **)&py->err_fetch = dlsym(RTLD_DEFAULT, "PyErr_Fetch");
	*(void **)&py->err_restore = dlsym(RTLD_DEFAULT, "PyErr_Restore");
	*(void **)&py->decref = dlsym(RTLD_DEFAULT, "Py_DecRef");
	return py->initialized && py->gil_ensure && py->gil_release && py->err_fetch &&
	       py->err_restore && py->decref && py->initialized();
}

static void drop(void *object)
{
	void *type, *value, *traceback;
	struct python py = { 0 };
	int gil;

	/* After the end of the interpreter there is no object left to drop. */
	if (!object || !find_python(&py))
		return;
	gil = py.gil_ensure();
	py.err_fetch(&type, &value, &traceback);
	py.decref(object);
	py.err_restore(type, value, traceback);
	py.gil_release(gil);
}

void peerlane_dlpack_delete(void *managed)
{
	if (managed)
		drop(((struct dl_managed *)managed)->manager_ctx);
}

void peerlane_dlpack_delete_versioned(void *managed)
{
	if (managed)
		drop(((struct dl_versioned *)managed)->manager_ctx);
}

void peerlane_dlpack_destroy(void *capsule)
{
	int (*is_valid)(void *capsule, const char *name);
	void *(*get_pointer)(void *capsule, const char *name);

	*(void **)&is_valid = dlsym(RTLD_DEFAULT, "PyCapsule_IsValid");
	*(void **)&get_pointer = dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer");
	if (!is_valid || !get_pointer)
		return;
	/* A consumer that takes the structure puts "used_" before the name. */
	if (is_valid(capsule, "dltensor"))
		peerlane_dlpack_delete(get_pointer(capsule, "dltensor"));
	else if (is_valid(capsule, "dltensor_versioned"))
		peerlane_dlpack_delete_versioned(get_pointer(capsule, "dltensor_versioned"));
}
