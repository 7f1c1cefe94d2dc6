"""A pytest plugin: the presets' models of llama.cpp's tests are not used, so they need no download."""


def pytest_sessionstart():
    import utils

    utils.ServerPreset.load_all = staticmethod(lambda: None)
