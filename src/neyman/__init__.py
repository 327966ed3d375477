"""Neyman"""
