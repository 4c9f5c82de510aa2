#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_timed", .m_size = 0};
PyMODINIT_FUNC PyInit__timed(void) { return PyModule_Create(&module); }
