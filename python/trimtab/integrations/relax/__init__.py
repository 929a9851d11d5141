"""For users of Relax: the forms of its teacher URLs."""

from __future__ import annotations

from trimtab.integrations.relax.teacher_urls import TeacherCall, TeacherUrls

__all__ = ["TeacherCall", "TeacherUrls"]
