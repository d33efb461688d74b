// An exact check of many tensors at once, as a Python extension module.
//
// `exact_check(tensors)` returns a function of as many tensors that tells whether they look the same
// as these: type, dispatch keys as the calling thread sees them, dtype, device, requires_grad, sizes,
// strides, and which of them are the same object. It is what Dynamo's TensorGuards compares, and more
// of it: whole devices, and the keys of Python modes, some of which Dynamo masks. It returns None for
// what it cannot describe: symbolic sizes, a layout without strides, tensors and threads whose
// operators Python handles.
//
// A check is immutable once made, keeps no tensor alive, raises nothing, and refuses what is no tensor.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace {

using c10::impl::LocalDispatchKeySet;

// How torch lays out the object of a tensor; its own header takes ten times as long to compile.
// `is_tensor` finds out whether it holds.
struct TensorObject {
  PyObject_HEAD
  at::TensorBase tensor;
};

struct Decref {
  void operator()(PyObject* object) const { Py_XDECREF(object); }
};
using Owned = std::unique_ptr<PyObject, Decref>;

const c10::TensorImpl& impl_of(PyObject* object) {
  return *reinterpret_cast<TensorObject*>(object)->tensor.unsafeGetTensorImpl();
}

uint64_t visible_keys(const c10::TensorImpl& impl, const LocalDispatchKeySet& thread) {
  return ((impl.key_set() | thread.included_) - thread.excluded_).raw_repr();
}

bool is_tensor(PyObject* object) {
  if (Py_TYPE(object)->tp_basicsize < static_cast<Py_ssize_t>(sizeof(TensorObject))) return false;
  Owned address(PyObject_GetAttrString(object, "_cdata"));
  if (!address || !PyLong_Check(address.get())) return false;
  const void* stated = PyLong_AsVoidPtr(address.get());
  return stated != nullptr && stated == &impl_of(object);
}

bool has_python_keys(uint64_t keys) {
  constexpr c10::DispatchKeySet python({c10::DispatchKey::Python,
                                        c10::DispatchKey::PythonTLSSnapshot,
                                        c10::DispatchKey::PythonDispatcher});
  return c10::DispatchKeySet(c10::DispatchKeySet::RAW, keys).has_any(python);
}

// Whether no object is given twice: a hash table with linear probing, at most half full.
class Distinct {
 public:
  explicit Distinct(size_t count) {
    while (size_t{1} << bits_ < 2 * count) ++bits_;
  }

  template <typename Positions>
  bool operator()(PyObject* const* objects, const Positions& positions) const {
    const size_t size = size_t{1} << bits_;
    if (size > kOnStack) {
      std::vector<PyObject*> table(size);
      return fill(table.data(), objects, positions);
    }
    std::array<PyObject*, kOnStack> table;
    std::fill_n(table.begin(), size, nullptr);
    return fill(table.data(), objects, positions);
  }

 private:
  static constexpr size_t kOnStack = 512;

  template <typename Positions>
  bool fill(PyObject** table, PyObject* const* objects, const Positions& positions) const {
    const size_t last = (size_t{1} << bits_) - 1;
    for (const size_t position : positions) {
      PyObject* object = objects[position];
      // Multiplied by 2^64 over the golden ratio, addresses that are near each other spread out.
      size_t slot = (reinterpret_cast<uint64_t>(object) * 0x9E3779B97F4A7C15u) >> (64 - bits_);
      for (; table[slot] != nullptr; slot = (slot + 1) & last) {
        if (table[slot] == object) return false;
      }
      table[slot] = object;
    }
    return true;
  }

  unsigned bits_ = 1;
};

// What one tensor must look like.
struct Form {
  PyTypeObject* type;
  uint64_t keys;
  caffe2::TypeMeta dtype;
  c10::Device device;
  bool requires_grad;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  bool accepts(const c10::TensorImpl& impl, const LocalDispatchKeySet& thread) const {
    return keys == visible_keys(impl, thread) && !impl.has_symbolic_sizes_strides() &&
        dtype == impl.dtype() && device == impl.device() &&
        requires_grad == impl.requires_grad() && impl.sizes().equals(sizes) &&
        impl.strides().equals(strides);
  }
};

class Check {
 public:
  // Throws where a tensor has no sizes or strides.
  Check(PyObject* const* objects, size_t count) : once_(), distinct_(count) {
    const auto thread = c10::impl::tls_local_dispatch_key_set();
    for (size_t i = 0; i < count; ++i) {
      const auto first = std::find(objects, objects + i, objects[i]) - objects;
      if (static_cast<size_t>(first) != i) {
        again_.push_back({i, static_cast<size_t>(first)});
        continue;
      }
      const auto& impl = impl_of(objects[i]);
      forms_.push_back({Py_TYPE(objects[i]), visible_keys(impl, thread), impl.dtype(),
                        impl.device(), impl.requires_grad(), impl.sizes().vec(),
                        impl.strides().vec()});
      once_.push_back(i);
    }
    for (const Form& form : forms_) Py_INCREF(form.type);
  }

  bool is_complete() const {
    return std::none_of(forms_.begin(), forms_.end(),
                        [](const Form& form) { return has_python_keys(form.keys); });
  }

  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  ~Check() {
    for (const Form& form : forms_) Py_DECREF(form.type);
  }

  // Throws where a tensor of the right type has no sizes or strides, or memory runs out.
  bool accepts(PyObject* const* objects, size_t count) const {
    if (count != once_.size() + again_.size()) return false;
    const auto thread = c10::impl::tls_local_dispatch_key_set();
    for (size_t i = 0; i < forms_.size(); ++i) {
      PyObject* object = objects[once_[i]];
      if (Py_TYPE(object) != forms_[i].type) return false;
      if (!forms_[i].accepts(impl_of(object), thread)) return false;
    }
    for (const auto& [position, first] : again_) {
      if (objects[position] != objects[first]) return false;
    }
    return distinct_(objects, once_);
  }

 private:
  struct Again {
    size_t position;
    size_t first;
  };

  std::vector<Form> forms_;  // of each object, where it is first
  std::vector<size_t> once_;
  std::vector<Again> again_;
  Distinct distinct_;
};

constexpr const char* kCapsule = "tcbuild.Check";

void destroy(PyObject* capsule) {
  delete static_cast<Check*>(PyCapsule_GetPointer(capsule, kCapsule));
}

PyObject* check(PyObject* capsule, PyObject* const* objects, Py_ssize_t count) {
  const auto* made = static_cast<const Check*>(PyCapsule_GetPointer(capsule, kCapsule));
  bool accepted = false;
  try {
    accepted = made->accepts(objects, static_cast<size_t>(count));
  } catch (...) {
    PyErr_Clear();
  }
  return PyBool_FromLong(accepted);
}

PyMethodDef check_method = {
    "check",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(check)),
    METH_FASTCALL,
    "Return whether the tensors look the same."};

PyObject* exact_check(PyObject*, PyObject* tensors) {
  if (!PyTuple_CheckExact(tensors)) {
    PyErr_SetString(PyExc_TypeError, "expected a tuple");
    return nullptr;
  }
  PyObject* const* objects = &PyTuple_GET_ITEM(tensors, 0);
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(tensors));
  if (!std::all_of(objects, objects + count, is_tensor)) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  try {
    auto made = std::make_unique<Check>(objects, count);
    if (!made->is_complete()) Py_RETURN_NONE;
    Owned capsule(PyCapsule_New(made.get(), kCapsule, destroy));
    if (!capsule) return nullptr;
    made.release();
    return PyCFunction_New(&check_method, capsule.get());
  } catch (...) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
}

PyMethodDef methods[] = {
    {"exact_check", exact_check, METH_O, "Return a check of a tuple of tensors, or None."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "tcbuild_tensor_check", nullptr, 0, methods, nullptr, nullptr, nullptr,
    nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_tcbuild_tensor_check() {
  return PyModuleDef_Init(&module);
}
