"""Only what pyproject.toml has no words for: the wheel holds a library of this platform, for any
Python 3."""

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class OfThisPlatform(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython3(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(distclass=OfThisPlatform, cmdclass={"bdist_wheel": AnyPython3})
